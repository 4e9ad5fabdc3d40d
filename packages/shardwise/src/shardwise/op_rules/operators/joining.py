"""Several tensors laid side by side, stacked, or spread over a common shape.

Each rank joins its own parts, so along the joined dim the shards of the parts would interleave. All other dims are
shared: sharded in every part alike. Lists that are joined must be pending throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, Shape, dim_index, pointwise
from ..schema import Each, OpRule
from ..vocabulary.labellers import argument, moved, unshardable

_JOINED = "each rank joins its own parts, so the shards of the parts would interleave"
_BLOCKS = "each part gets rows and columns of its own, and the shards of the parts would interleave"
_INNER = "the combinations run through all parts, and only the first part's dim is the outermost"
Places = Callable[[int], Sequence[int]]
"""For a part with so many dims: where each of them is in the result."""


def _join(call: Call, places: Places, joined: int, ndim: int) -> Labelling:
    """A single part is the whole and keeps all its dims."""
    parts = [part for part in call.tensors if not _is_skipped(part, call)]
    lost = joined if len(parts) > 1 else None
    rows: list[Dims] = []
    for part in call.tensors:
        rows.append(tuple(f"d{at}" for at in places(part.ndim)) if part in parts else unshardable(part))
    named = {label for row in rows for label in row}
    result = tuple(f"d{at}" if f"d{at}" in named and at != lost else None for at in range(ndim))
    fates = {} if lost is None else {f"d{lost}": Fate.OPAQUE}
    return Labelling(tuple(rows), (result,), fates, dict.fromkeys(fates, _JOINED))


def _is_skipped(part: Shape, call: Call) -> bool:
    """``cat`` leaves out vectors without elements, whatever the other parts are."""
    return part.shape == (0,) and any(other.ndim != 1 for other in call.tensors)


def _ndim(call: Call) -> int:
    return max((part.ndim for part in call.tensors), default=0)


def _joining_dim(call: Call) -> int:
    return int(argument(call, "dim", "axis", default=0))


def _cat(call: Call) -> Labelling:
    ndim = _ndim(call)
    return _join(call, range, dim_index(_joining_dim(call), ndim), ndim)


def _stack(call: Call) -> Labelling:
    ndim = _ndim(call) + 1
    new = dim_index(_joining_dim(call), ndim)
    return _join(call, lambda own: [dim + (dim >= new) for dim in range(own)], new, ndim)


def _hstack(call: Call) -> Labelling:
    ndim = max(_ndim(call), 1)
    return _join(call, range, min(1, ndim - 1), ndim)


def _vstack(call: Call) -> Labelling:
    return _join(call, lambda own: [1] if own == 1 else range(own), 0, max(_ndim(call), 2))


def _dstack(call: Call) -> Labelling:
    return _join(call, lambda own: [1] if own == 1 else range(own), 2, max(_ndim(call), 3))


def _column_stack(call: Call) -> Labelling:
    return _join(call, range, 1, max(_ndim(call), 2))


def _block_diag(call: Call) -> Labelling:
    return _all_lost(call, 2, _BLOCKS)


def _all_lost(call: Call, ndim: int, why: str) -> Labelling:
    rows = tuple(tuple(f"x{at}.{dim}" for dim in range(part.ndim)) for at, part in enumerate(call.tensors))
    lost = [label for row in rows for label in row]
    return Labelling(rows, ((None,) * ndim,), dict.fromkeys(lost, Fate.OPAQUE), dict.fromkeys(lost, why))


def _cartesian_prod(call: Call) -> Labelling:
    """``a, b -> (a b) 2``: the first part is the outermost."""
    if len(call.tensors) == 1:
        return moved(call, {0: 0}, 1)
    lost = {f"x{at}": Fate.OPAQUE for at in range(1, len(call.tensors))}
    rows = (("d0",), *((label,) for label in lost))
    return Labelling(rows, (("d0", None),), lost, dict.fromkeys(lost, _INNER), frozenset({"d0"}))


def _meshgrid(call: Call) -> Labelling:
    """Part i is dim i of every result; ``xy`` swaps the first two."""
    order = list(range(len(call.tensors)))
    if call.get("indexing") == "xy":
        order[:2] = reversed(order[:2])
    rows = tuple((f"d{at}",) if part.ndim else () for at, part in enumerate(call.tensors))
    return Labelling(rows, (tuple(f"d{at}" if call.tensors[at].ndim else None for at in order),))


def _broadcast(call: Call) -> Labelling:
    """Every result gets the dim that is sharded, so a part with one element of it has to be sharded with the others."""
    return replace(pointwise(call), spread=frozenset())


def _at_least(least: int) -> Labeller:
    """``atleast_2d`` puts a new dim in front, ``atleast_3d`` one behind as well; several tensors are several calls."""

    def label(call: Call) -> Labelling | None:
        ndim = call.first.ndim
        first = 1 if ndim == 1 and least > 1 else 0
        return (
            moved(call, {dim: dim + first for dim in range(ndim)}, max(ndim, least)) if len(call.tensors) == 1 else None
        )

    return label


def _joined(op: str, labels: Labeller | None, *spellings: str, beside: str = "") -> OpRule:
    """``beside``  the parameters behind the list."""
    law = "joins pending sums; a part that is not pending would be counted once per rank"
    return OpRule(op, f"*tensors {beside}".strip(), "tensors", law=law, spellings=spellings, labels=labels)


def _for_each(op: str, each: Each, labels: Labeller, view: bool = False) -> OpRule:
    law = "every result has the elements of one tensor of the list, moved or repeated"
    return OpRule(op, "*tensors", "tensors", each=each, law=law, view=view, labels=labels)


RULES = (
    _joined("cat", _cat, beside="dim"),
    _joined("stack", _stack, "_stack", beside="dim"),
    _joined("hstack", _hstack),
    _joined("vstack", _vstack),
    _joined("dstack", _dstack),
    _joined("column_stack", _column_stack),
    _joined("block_diag", _block_diag),
    _joined("_chunk_cat", None, beside="dim num_chunks"),
    _joined("cartesian_prod", _cartesian_prod),
    _for_each("broadcast_tensors", Each.SHAPED, _broadcast),
    _for_each("meshgrid", Each.SHAPED, _meshgrid),
    *(_for_each(f"atleast_{least}d", Each.APART, _at_least(least), view=True) for least in (1, 2, 3)),
)
