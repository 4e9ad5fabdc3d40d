"""Products that sum over shared dims, in every spelling of a matrix product.

A product is linear in each factor: one may be a pending sum. An added bias must be pending when the product is.
"""

from __future__ import annotations

from ..propagation.dim_labels import (
    Call,
    Dims,
    Fate,
    Label,
    Labeller,
    Labelling,
    Shape,
    broadcast,
    dim_index,
    numbered,
    pointwise,
)
from ..propagation.einsum_equation import parse
from ..schema import OpRule
from ..vocabulary.labellers import because, by_role, stretched, tensor_at

_BILINEAR = "bilinear: one factor may be a pending sum"
_AFFINE = "a product plus a term: the term must be pending when the product is, or it is added once per rank"
_PRODUCT = "multilinear: exactly one factor may be a pending sum"
_WHY_DIAGONAL = "a diagonal crosses every shard of one of its dims only"
_WHY_KRON = "every block of the result holds all elements of the second operand along the dim"
_WHY_GROUPS = "the offsets of the groups count rows of all ranks"
_WHY_NEIGHBOURS = "the areas between neighbours are summed, and neighbours may be on another rank"
_WHY_CROSS = "the three components of a vector are mixed"

_MATMUL = {
    (False, False): "k, k ->",
    (True, False): "*b m k, k -> *b m",
    (False, True): "k, *b k n -> *b n",
    (True, True): "*b m k, *b k n -> *b m n",
}


def _matmul(call: Call) -> Labelling | None:
    """A vector is a row on the left and a column on the right."""
    first, second = tensor_at(call, "input"), tensor_at(call, "other")
    if first is None or second is None or not (first.ndim and second.ndim):
        return None
    return by_role("input other", _MATMUL[first.ndim > 1, second.ndim > 1])(call)


def _reversed_matmul(call: Call) -> Labelling | None:
    """``input.__rmatmul__(other)`` is ``other @ input``."""
    exchanged = {"input": "other", "other": "input"}
    tensors = tuple(Shape(t.shape, exchanged.get(t.param, t.param), t.dtype) for t in call.tensors)
    return _matmul(Call(tensors, call.arguments))


def _linear(call: Call) -> Labelling | None:
    """A weight of one dim makes one feature, without a dim."""
    weight = tensor_at(call, "weight")
    one = weight is not None and weight.ndim == 1
    return by_role("input weight bias", "*b k, k, -> *b" if one else "*b k, n k, n -> *b n")(call)


def _inner(call: Call) -> Labelling | None:
    if len(call.tensors) != 2 or not all(tensor.ndim for tensor in call.tensors):
        return pointwise(call) if len(call.tensors) == 2 else None
    rows = [(*numbered(tensor.ndim - 1, f"t{at}."), "k") for at, tensor in enumerate(call.tensors)]
    return Labelling(tuple(rows), (rows[0][:-1] + rows[1][:-1],))


def _einsum(call: Call) -> Labelling | None:
    """Any equation; operands and lists of numbers in turn are not read."""
    equation = call.get("equation")
    read = parse(equation, [tensor.ndim for tensor in call.tensors]) if isinstance(equation, str) else None
    if read is None:
        return None
    rows, result = read
    twice = {label for row in rows for label in row if row.count(label) > 1}
    return stretched(
        rows, call.tensors, (result,), dict.fromkeys(twice, Fate.OPAQUE), dict.fromkeys(twice, _WHY_DIAGONAL)
    )


def _chain(call: Call) -> Labelling | None:
    """Matrices one after the other; the first may be a row, the last a column."""
    if not call.tensors:
        return None
    rows: list[Dims] = []
    for at, tensor in enumerate(call.tensors):
        first, last = at == 0, at == len(call.tensors) - 1
        if tensor.ndim == 2:
            rows.append((f"m{at}", f"m{at + 1}"))
        elif tensor.ndim == 1 and (first or last):
            rows.append((f"m{at + 1 if first else at}",))
        else:
            return None
    ends = [rows[0][0]] if call.tensors[0].ndim == 2 else []
    ends += [rows[-1][1]] if call.tensors[-1].ndim == 2 else []
    return Labelling(tuple(rows), (tuple(ends),))


def _tensordot(call: Call) -> Labelling | None:
    """``dims`` is how many last dims of the one go with the first of the other, or a pair of lists."""
    first, second = tensor_at(call, "a"), tensor_at(call, "b")
    paired = None if first is None or second is None else _paired(call.get("dims", 2), first.ndim, second.ndim)
    if paired is None or first is None or second is None:
        return None
    left, right = list(numbered(first.ndim, "a")), list(numbered(second.ndim, "b"))
    for at, (i, j) in enumerate(zip(*paired, strict=True)):
        left[i] = right[j] = f"k{at}"
    result = tuple(label for label in left + right if not label.startswith("k"))
    return stretched([left if tensor is first else right for tensor in call.tensors], call.tensors, (result,))


def _paired(dims: object, first: int, second: int) -> tuple[list[int], list[int]] | None:
    if isinstance(dims, int):
        dims = range(first - dims, first), range(dims)
    if not isinstance(dims, (tuple, list)) or len(dims) != 2 or any(isinstance(each, (int, Shape)) for each in dims):
        return None
    left, right = [dim % first for dim in dims[0]], [dim % second for dim in dims[1]]
    return (left, right) if len(left) == len(right) else None


def _kron(call: Call) -> Labelling | None:
    """A dim of the result is the first operand's dim, in each of whose elements lies the whole of the second's."""
    first, second = tensor_at(call, "input"), tensor_at(call, "other")
    if first is None or second is None:
        return None
    outer = tuple(f"a{first.ndim - dim}" for dim in range(first.ndim))
    inner = tuple(f"b{second.ndim - dim}" for dim in range(second.ndim))
    rows = tuple(outer if tensor is first else inner for tensor in call.tensors)
    result = outer if len(outer) >= len(inner) else inner[: len(inner) - len(outer)] + outer
    mixed = [label for label in inner if label not in result]
    return Labelling(rows, (result,), dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, _WHY_KRON))


def _vecdot(call: Call) -> Labelling | None:
    _, result = broadcast([tensor.shape for tensor in call.tensors])
    dim = call.get("dim", -1)
    if not result or not -len(result) <= dim < len(result):
        return None
    return _broadcast_product(call, result[:dim] + result[dim:][1:], {})


def _broadcast_product(call: Call, result: Dims, opaque: dict[Label, str]) -> Labelling | None:
    rows = [[f"d{tensor.ndim - 1 - dim}" for dim in range(tensor.ndim)] for tensor in call.tensors]
    return stretched(rows, call.tensors, (result,), dict.fromkeys(opaque, Fate.OPAQUE), opaque)


def _cross(default: int | None) -> Labeller:
    """Without a dim, ``torch.cross`` takes the first one of size 3, which a shard may have where the whole has not."""

    def label(call: Call) -> Labelling | None:
        _, result = broadcast([tensor.shape for tensor in call.tensors])
        size = [max(_extent(tensor, at) for tensor in call.tensors) for at in reversed(range(len(result)))]
        dim = call.get("dim", default)
        if dim is None:
            dim = next((at for at, extent in enumerate(size) if extent == 3), None)
            unsure = [at for at, extent in enumerate(size[:dim]) if extent < 3]
        else:
            unsure = []
        if dim is None or not -len(size) <= dim < len(size):
            return None
        return _broadcast_product(call, result, {str(result[at]): _WHY_CROSS for at in (dim, *unsure)})

    return label


def _extent(tensor: Shape, from_last: int) -> int:
    return tensor.shape[-1 - from_last] if from_last < tensor.ndim else 1


def _trapezoid(left: bool) -> Labeller:
    """Distances are one per value, one per value along the dim, or a number; ``left``: sums so far stay."""

    def label(call: Call) -> Labelling | None:
        values = tensor_at(call, "y")
        if values is None or not values.ndim or any(t.param not in ("y", "x") for t in call.tensors):
            return None
        labels = numbered(values.ndim)
        dim = dim_index(call.get("dim", -1), values.ndim)
        if not all(tensor.ndim in (1, values.ndim) for tensor in call.tensors):
            return None
        rows = [labels if tensor.ndim == values.ndim else (labels[dim],) for tensor in call.tensors]
        result = labels if left else labels[:dim] + labels[dim + 1 :]
        return stretched(rows, call.tensors, (result,), {labels[dim]: Fate.OPAQUE}, {labels[dim]: _WHY_NEIGHBOURS})

    return label


def _grouped(call: Call) -> Labelling | None:
    """Matrices in a stack, or one matrix whose rows or columns are in groups that ``offs`` delimits."""
    first, second = tensor_at(call, "mat_a"), tensor_at(call, "mat_b")
    if first is None or second is None:
        return None
    texts = {
        (3, 3): "g m k, g k n, -> g m n",
        (2, 3): "[m] k, [g] k n, [g] -> m n",
        (3, 2): "[g] m k, k [n], [g] -> m n",
        (2, 2): "m [k], [k] n, [g] -> g m n",
    }
    text = texts.get((first.ndim, second.ndim))
    return None if text is None else because(_WHY_GROUPS, by_role("mat_a mat_b offs", text))(call)


def _product(
    op: str, first: str, second: str, labels: Labeller | str | None, *spellings: str, rest: str = ""
) -> OpRule:
    """``labels``  a labeller, or a signature with a term for each factor."""
    if isinstance(labels, str):
        labels = by_role(f"{first} {second}", labels)
    params = f"{first} {second} {rest}".strip()
    return OpRule(op, params, f"{first} {second}", law=_BILINEAR, spellings=spellings, labels=labels)


def _accumulating(op: str, first: str, second: str, text: str, *spellings: str) -> OpRule:
    """``input`` plus the product that ``text`` describes: ``input`` is broadcast to it."""
    left, _, right = text.partition("->")
    terms = {name: term.split() for name, term in zip((first, second), left.split(","), strict=True)}
    result = right.split()

    def label(call: Call) -> Labelling | None:
        if any(tensor.param not in ("input", *terms) for tensor in call.tensors):
            return None
        rows = [terms.get(t.param, result[len(result) - t.ndim :]) for t in call.tensors]
        return stretched(rows, call.tensors, (tuple(result),))

    return OpRule(
        op,
        f"input {first} {second} beta alpha",
        f"beta input + alpha {first} {second}",
        law=_AFFINE,
        source=f"torch.{op}: beta * input + alpha * ({first} @ {second})",
        spellings=spellings,
        labels=label,
    )


def _areas(op: str, *spellings: str, left: bool) -> OpRule:
    law = "a sum of products of values and distances"
    return OpRule(op, "y x dx", "y x dx", law=law, spellings=spellings, labels=_trapezoid(left))


RULES = (
    _product("matmul", "input", "other", _matmul),
    _product("rmatmul", "input", "other", _reversed_matmul),
    _product("mm", "input", "mat2", "m k, k n -> m n", "spmm", "smm", "dsmm", "sparse.mm", "_sparse_mm"),
    _product("bmm", "input", "mat2", "b m k, b k n -> b m n"),
    _product("grouped_mm", "mat_a", "mat_b", _grouped, "_grouped_mm", rest="offs"),
    _product("_int_mm", "input", "mat2", "m k, k n -> m n"),
    _product("mv", "input", "vec", "m k, k -> m"),
    _product("dot", "input", "tensor", "k, k ->"),
    _product("vdot", "input", "other", "k, k ->"),
    _product("linalg.vecdot", "x", "y", _vecdot, rest="dim"),
    _product("inner", "input", "other", _inner),
    _product("outer", "input", "vec2", "m, n -> m n"),
    _product("kron", "input", "other", _kron),
    _product("cross", "input", "other", _cross(None), rest="dim"),
    _product("linalg.cross", "input", "other", _cross(-1)),
    _product("tensordot", "a", "b", _tensordot, rest="dims"),
    OpRule("einsum", "equation *operands", "^operands", law=_PRODUCT, labels=_einsum),
    OpRule("chain_matmul", "*matrices", "^matrices", law=_PRODUCT, labels=_chain),
    OpRule("linalg.multi_dot", "*tensors", "^tensors", law=_PRODUCT, labels=_chain),
    _accumulating("addmm", "mat1", "mat2", "m k, k n -> m n"),
    _accumulating("addmv", "mat", "vec", "m k, k -> m"),
    _accumulating("addbmm", "batch1", "batch2", "b m k, b k n -> m n"),
    _accumulating("baddbmm", "batch1", "batch2", "b m k, b k n -> b m n"),
    _accumulating("addr", "vec1", "vec2", "m, n -> m n"),
    _accumulating("sspaddmm", "mat1", "mat2", "m k, k n -> m n", "saddmm"),
    OpRule(
        "linear",
        linear="input weight + bias",
        law=_AFFINE,
        source="torch.nn.functional.linear: input @ weight.T + bias",
        labels=_linear,
    ),
    OpRule(
        "bilinear",
        linear="input1 input2 weight + bias",
        law=_AFFINE,
        source="torch.nn.functional.bilinear: input1.T @ weight @ input2 + bias",
        labels=by_role("input1 input2 weight bias", "*b i, *b j, n i j, n -> *b n"),
    ),
    _areas("trapezoid", "trapz", left=False),
    _areas("cumulative_trapezoid", left=True),
)
