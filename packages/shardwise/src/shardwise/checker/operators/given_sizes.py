"""Sizes that a call is given: where one is that of a shard, what gets it is cut like the shard.

``weight.expand(x.shape[0], -1)`` and ``torch.ones(x.shape)`` have the rows of this rank only, and on one device those
of all: one more copy for each of x's rows. So the dim is cut by the axes that cut x, as with ``expand_as`` and
``ones_like``. The number says it: a size knows which axes it is one n-th of the whole along (``sizes.py``), and so does
``heads // n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import Arguments, Keywords
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.op_rules.propagation.local import Refusal
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.placement import UNKNOWN, I, Placement, V
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import EMPTY_TYPE, Ground, TensorType, constant_type

from ..state.numbers import TYPED_NUMBERS, RepeatedList, shared_along

COPIES = frozenset({"expand", "broadcast_to", "repeat", "tile", "repeat_interleave"})
"""What copies a tensor as often as the sizes say; by the name of the operator."""
EMPTY = frozenset({"empty", "new_empty"})
"""What makes memory of these sizes."""
FILLED = frozenset({"ones", "zeros", "full", "new_ones", "new_zeros", "new_full"})
"""What has one value everywhere, and may be cut anywhere."""
JOINING: dict[str, tuple[int | None, int]] = {
    "cat": (None, 1),
    "stack": (None, 1),
    "hstack": (1, 1),
    "vstack": (0, 2),
    "column_stack": (1, 2),
    "dstack": (2, 3),
}
"""What puts a list of tensors together: along which dim, None for one that is told, and how many the result has."""
_NAMES = ("size", "sizes", "shape", "repeats", "dims")


def sizes_of_call(name: str, args: Arguments, kwargs: Keywords) -> Sequence[object]:
    """The sizes in a call of an operator of this module, one for each of the last dims of the result."""
    if name == "repeat_interleave":
        return _repeated(*args, **kwargs)
    named = (kwargs[each] for each in _NAMES if each in kwargs)
    listed = next((value for value in (*args, *named) if isinstance(value, (list, tuple))), None)
    if listed is not None or name in ("full", "new_full", "randint", "normal"):
        return listed or ()
    return args[1:] if name in COPIES or name.startswith("new_") else args


def _repeated(input: object, repeats: object = 1, dim: object = None, **_: object) -> Sequence[object]:
    """How often ``repeat_interleave`` repeats along each dim, where it is told one."""
    if not isinstance(input, torch.Tensor) or not isinstance(dim, int) or not -input.ndim <= dim < input.ndim:
        return ()
    counts: list[object] = [1] * input.ndim
    counts[dim] = repeats
    return counts


def cuts_of(sizes: Sequence[object]) -> dict[MeshAxis, int]:
    """The axes that cut a dim with these sizes, and which, counted from the last (-1). What says it of two dims is
    left out: a square of one rank's sizes is no shard."""
    found: dict[MeshAxis, int] = {}
    twice: set[MeshAxis] = set()
    for number, size in enumerate(sizes):
        if size.__class__ in TYPED_NUMBERS:
            for axis in {*type_of(size).varying_axes, *shared_along(size)}:
                twice |= {axis} & found.keys()
                found[axis] = number - len(sizes)
    return {axis: dim for axis, dim in found.items() if axis not in twice}


def cut_like_sizes(whole: TensorType, sizes: Sequence[object]) -> TensorType:
    """The type of a tensor that is made with these sizes, and whose type were ``whole`` if they were nobody's shard.

    Sizes that differ per rank are those of shards whose lengths differ.
    """
    cuts = {axis: dim for axis, dim in cuts_of(sizes).items() if axis in whole and whole.is_equal(axis)}
    if not cuts:
        return whole
    own = {axis for axis, dim in cuts.items() if type_of(sizes[dim]).is_varying(axis)}
    places = {axis: V if axis in cuts else whole.get(axis) for axis in whole.axes}
    return TensorType.of(places, _joined([()] * len(sizes), cuts), whole.ground, own, whole.scale)


def memory_of_sizes(axes: Iterable[object], sizes: Sequence[object]) -> TensorType:
    """The type of memory of these sizes into which nobody has written: of a shard's, what is written is cut like it."""
    cut = cut_like_sizes(constant_type(axes), sizes)
    if cut.spec is None:
        return EMPTY_TYPE
    return TensorType.of(dict.fromkeys(cut.varying_axes, V), cut.spec, Ground.EMPTY, cut.uneven)


def cut_copies(outcome: Outcome, cuts: dict[MeshAxis, int], ndim: int, operands: Sequence[Bound]) -> Outcome:
    """``outcome`` of a call that makes copies, in ``ndim`` dims, with the dims cut that have the sizes of shards."""
    if not operands or (source := operands[0].shape) is None:
        return outcome
    copied = {axis: dim for axis, dim in cuts.items() if dim + len(source) < 0 or source[dim + len(source)] == 1}
    return _cut(outcome, copied, ndim, operands)


def cut_repeated(name: str, outcome: Outcome, args: Arguments, kwargs: Keywords, operands: Sequence[Bound]) -> Outcome:
    """``outcome`` of a call that puts a ``RepeatedList`` together: it is as long as a shard if a size of one says how
    often its items are there."""
    own = max((len(operand.shape or ()) for operand in operands), default=0)
    fixed, least = JOINING[name]
    ndim = own + 1 if name == "stack" else max(own, least)
    dim: object = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else 0))
    dim = min(fixed, ndim - 1) if fixed is not None else dim
    joined = args[0] if args else kwargs.get("tensors")
    if not isinstance(joined, RepeatedList) or not isinstance(dim, int) or not -ndim <= dim < ndim:
        return outcome
    return _cut(outcome, dict.fromkeys(cuts_of((joined.times,)), dim % ndim - ndim), ndim, operands)


def cut_like_memory(outcome: Outcome, memory: TensorType, operands: Sequence[Bound]) -> Outcome:
    """``outcome`` of a call that writes into all of ``memory``, of which there is a row for each one of a shard."""
    if memory.spec is None:
        return outcome
    ndim = len(memory.spec)
    cuts = {axis: dim - ndim for dim, entry in enumerate(memory.spec) for axis in entry_axes(entry)}
    return cut_copies(outcome, cuts, ndim, operands)


def _cut(outcome: Outcome, cuts: dict[MeshAxis, int], ndim: int, operands: Sequence[Bound]) -> Outcome:
    """``outcome`` with these dims cut, if they are not, of what every rank has."""
    type = outcome.type
    if not cuts or not (type.ground is Ground.ABSENT or type.ground.is_constant):
        return outcome
    entries = [entry_axes(entry) for entry in type.spec or (None,) * ndim]
    changes: dict[MeshAxis, Placement] = {}
    taken: dict[MeshAxis, int] = {}
    refusals: list[AxisRefusal] = []
    for axis, dim in cuts.items():
        if axis not in type or dim < -len(entries) or entries[dim]:
            continue
        if type.is_partial(axis) and type.ground is Ground.ABSENT:
            refusals.append(AxisRefusal(axis, Refusal("SW112", "nonlinear", (0,))))  # nothing is pending and cut
            changes[axis] = UNKNOWN
            continue
        if not type.is_equal(axis):
            continue
        if type.get(axis) is I:
            outcome = replace(outcome, grad_matters=True)
            if any(operand.grad for operand in operands):
                refusals.append(AxisRefusal(axis, Refusal("SW101", "spread over a shard", (0,))))
                changes[axis] = UNKNOWN
                continue
        changes[axis], taken[axis] = V, dim
    if not changes:
        return outcome
    places = {**{axis: type.get(axis) for axis in type.axes}, **changes}
    spec = None if refusals else _joined(entries, taken)
    made = TensorType.of(places, spec, type.ground, type.uneven, type.scale)
    return replace(outcome, type=made, refusals=(*outcome.refusals, *refusals))


def _joined(entries: Sequence[tuple[MeshAxis, ...]], cuts: dict[MeshAxis, int]) -> PartitionSpec:
    """The entries with the axes of ``cuts`` in them, the outermost first."""
    made = [list(entry) for entry in entries]
    for axis in sorted(cuts, key=lambda axis: axis.sort_key):
        made[cuts[axis]].append(axis)
    return PartitionSpec(*map(make_entry, made))
