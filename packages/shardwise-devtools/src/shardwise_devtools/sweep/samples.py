"""Which calls does the sweep try? Sample inputs of PyTorch's op database, as functions of their tensors alone.

A sample becomes a ``Case``: the tensors among its arguments, at any depth, are operands; everything else is fixed.
Every case has two sets of values, drawn from the same domain, so that an accident does not count as a truth.
Most floating samples have double precision, because an oracle in single precision is blind to lies that are smaller
than its rounding: relative errors of 1e-4 instead of 1e-7. Where the operator has both, samples in the single precision
that programs run in follow, so that rules and kernels that depend on the dtype are tried as well.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import random
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.masked
from torch.nn.attention import SDPBackend, sdpa_kernel

from shardwise.interop.calls.op_names import op_name
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.torch_compat import tree_leaves, tree_map
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import OpRule
from shardwise.oracle.local_types import Tensors

from .preconditions import check_arguments

LARGEST = 32768
"""Elements of an operand; larger samples test kernels, not shardings."""
LOOKED_AT = 48
"""Samples of one operator among which the cases are chosen."""


@dataclass(frozen=True)
class Case:
    """One call. ``fn`` takes the tensors only; ``values`` and ``others`` are two sets of them."""

    kind: str
    fn: Callable[..., Any]
    values: Tensors
    others: Tensors | None
    shown: str


@dataclass(frozen=True, slots=True)
class Domain:
    """A sort of numbers: dtypes in order of preference, and how many samples of the first that the operator takes."""

    kind: str
    dtypes: tuple[torch.dtype, ...]
    samples: int


DOMAINS = (
    Domain("float", (torch.float64, torch.float32), 4),
    Domain("float", (torch.float32,), 2),
    Domain("complex", (torch.complex128, torch.complex64), 1),
    Domain("int", (torch.int64, torch.int32), 1),
)


def full_name(op: Any) -> str:
    """The database's name of an entry, with its variant."""
    return f"{op.name} ({op.variant_test_name})" if op.variant_test_name else str(op.name)


def rule_of(op: Any) -> OpRule | None:
    """The rule of the registry that describes an entry; the database wraps some operators in functions of its own."""
    rule = op_name(op.op).find(lookup)
    plain = op.name.removeprefix("torch.").removeprefix("nn.functional.").removeprefix("ops.aten.").split(".default")[0]
    return rule or next((found for name in (op.name, plain, f"{plain}_") if (found := lookup(name))), None)


def seed_everything(text: str) -> int:
    """Seed every generator that samples are drawn with; the seed is made from ``text``."""
    seed = zlib.crc32(text.encode())
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    return seed


_SIZED = {"view": 0, "view_copy": 0, "reshape": 0, "unflatten": 1}
"""Where these take the sizes of their result: a rank's sizes differ, so each in turn is left to the operator (-1)."""


_WITHIN: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "nn.functional.scaled_dot_product_attention": functools.partial(sdpa_kernel, SDPBackend.MATH)
}
"""Attention is tried in its plain form: it keeps its dtype's precision, and DTensor has rules for its parts. For the
CPU's fused kernel it has none, and tries the decomposition on every placement, for minutes."""


def cases_of(op: Any) -> Iterator[Case]:
    """The cases of one entry of the database, the same in every run."""
    tried: set[torch.dtype] = set()
    for domain in DOMAINS:
        dtype = next((dtype for dtype in domain.dtypes if op.supports_dtype(dtype, "cpu")), None)
        if dtype is None or dtype in tried:
            continue
        tried.add(dtype)
        drawn = [[form for sample in _draw(op, dtype, number) for form in _unsized(op, sample)] for number in (0, 1)]
        usable = [at for at, sample in enumerate(drawn[0]) if _is_usable(sample)]
        for at in _spread_out(usable, [_form(sample) for sample in drawn[0]], domain.samples):
            yield _case(op, domain.kind, drawn[0][at], drawn[1][at] if at < len(drawn[1]) else None)


def _draw(op: Any, dtype: torch.dtype, number: int) -> list[Any]:
    seed_everything(f"{full_name(op)} {dtype} {number}")
    samples = op.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(itertools.islice(samples, LOOKED_AT))


def _unsized(op: Any, sample: Any) -> Iterator[Any]:
    """The sample, or its forms with one of the result's sizes left open.

    Dims in front of it are the operand's own: a literal that several dims merge into would be a rank's size, too.
    """
    at = _SIZED.get(op.name, len(sample.args))
    sizes = sample.args[at] if at < len(sample.args) else None
    if not isinstance(sizes, (tuple, list)) or -1 in sizes:
        yield sample
        return
    own = () if at else sample.input.shape
    for position in range(len(sizes)):
        if tuple(sizes[:position]) != tuple(own[:position]):
            break
        form = copy.copy(sample)
        free = tuple(-1 if number == position else size for number, size in enumerate(sizes))
        form.args = (*sample.args[:at], free, *sample.args[at + 1 :])
        yield form


def _leaves(sample: Any) -> list[Any]:
    return tree_leaves((sample.input, sample.args, sample.kwargs))


def _tensors(sample: Any) -> Tensors:
    return tuple(leaf for leaf in _leaves(sample) if isinstance(leaf, torch.Tensor))


def _is_usable(sample: Any) -> bool:
    tensors = _tensors(sample)
    # A single number is linear in nearly every operator that hands positive ones on, and there is nothing to cut.
    return any(tensor.numel() > 1 for tensor in tensors) and all(
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and 0 < tensor.numel() <= LARGEST
        and not tensor.is_quantized
        for tensor in tensors
    )


def _form(sample: Any) -> tuple[Any, ...]:
    free = [leaf for leaf in _leaves(sample) if isinstance(leaf, int) and leaf == -1]
    return tuple(tensor.ndim for tensor in _tensors(sample)), tuple(sorted(sample.kwargs)), len(free)


def _spread_out(usable: Sequence[int], forms: Sequence[tuple[Any, ...]], count: int) -> list[int]:
    """Up to ``count`` of the usable samples, one of each form before a second one of any; more dims first."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at in usable:
        groups.setdefault(forms[at], []).append(at)
    queues = sorted(groups.values(), key=lambda group: -sum(forms[group[0]][0]))
    rounds = itertools.zip_longest(*queues)
    return [at for each in rounds for at in each if at is not None][:count]


def _case(op: Any, kind: str, sample: Any, other: Any) -> Case:
    structure = (sample.input, sample.args, sample.kwargs)
    called = _by_name(op.op)

    def fn(*tensors: torch.Tensor) -> Any:
        remaining = iter(tensors)
        input, args, kwargs = tree_map(lambda leaf: _fresh(leaf, remaining), structure)
        check_arguments(op.name, (input, *args))
        with _WITHIN.get(op.name, contextlib.nullcontext)():
            return called(input, *args, **kwargs)

    values = _tensors(sample)
    return Case(kind, fn, values, _alike(sample, other), _shown(structure))


def _by_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a program calls it: those of ``torch.masked`` are found in the module while it is checked."""
    name = getattr(function, "__name__", "")
    if name not in torch.masked.__all__ or inspect.unwrap(getattr(torch.masked, name)) is not function:
        return function
    return lambda *args, **kwargs: getattr(torch.masked, name)(*args, **kwargs)


def _fresh(leaf: Any, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(leaf, torch.nn.Module):
        return copy.deepcopy(leaf)  # what counts DTensor's traffic leaves hooks on the modules it has seen
    return next(tensors) if isinstance(leaf, torch.Tensor) else leaf


def _alike(sample: Any, other: Any) -> Tensors | None:
    """The other draw's tensors if it differs in values only."""
    if other is None:
        return None
    mine, theirs = _leaves(sample), _leaves(other)
    if len(mine) != len(theirs):
        return None
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if a.shape != b.shape or a.dtype != b.dtype:
                return None
        elif repr(a) != repr(b):
            return None
    return _tensors(other)


def _shown(structure: Any) -> str:
    """The arguments as text: tensors by shape."""
    input, args, kwargs = tree_map(
        lambda leaf: (
            _Shown(f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}")
            if isinstance(leaf, torch.Tensor)
            else leaf
        ),
        structure,
    )
    return ", ".join([repr(input), *map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


class _Shown(str):
    def __repr__(self) -> str:
        return str(self)


def draws_numbers(case: Case) -> bool:
    """True if two calls on the same operands differ, or the first call moves the global generator."""
    before = torch.get_rng_state()
    first = tensors_in(case.fn(*[value.clone() for value in case.values]))
    moved = not torch.equal(before, torch.get_rng_state())
    torch.set_rng_state(before)
    torch.rand(1)
    second = tensors_in(case.fn(*[value.clone() for value in case.values]))
    torch.set_rng_state(before)
    return moved or not all(
        a.shape == b.shape and torch.allclose(a, b, equal_nan=True) if a.dtype is not torch.bool else torch.equal(a, b)
        for a, b in zip(first, second, strict=False)
    )
