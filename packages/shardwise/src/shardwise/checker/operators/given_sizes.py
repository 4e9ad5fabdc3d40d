"""Sizes that a call is given: where one is that of a shard, what gets it is cut like the shard.

``weight.expand(x.shape[0], -1)`` and ``torch.ones(x.shape)`` have the rows of this rank only, and on one device those
of all: one more copy for each of x's rows. So the dim is cut by the axes that cut x, as with ``expand_as`` and
``ones_like``. The number says it: a size knows which axes it is one n-th of the whole along (``sizes.py``), and so does
``heads // n``.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from shardwise.types.tensor_type import Ground, TensorType

from ..state.numbers import TYPED_NUMBERS, shared_along

COPIES = frozenset({"expand", "broadcast_to", "repeat", "tile", "repeat_interleave"})
"""What copies a tensor as often as the sizes say; by the name of the operator."""
FILLED = frozenset({"ones", "zeros", "full", "new_ones", "new_zeros", "new_full"})
"""What has one value everywhere, and may be cut anywhere."""
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


def cut_copies(outcome: Outcome, cuts: dict[MeshAxis, int], ndim: int, operands: Sequence[Bound]) -> Outcome:
    """``outcome`` of a call that makes copies, in ``ndim`` dims, with the dims cut that have the sizes of shards."""
    type = outcome.type
    known = type.ground is Ground.ABSENT or type.ground.is_constant
    if not known or not operands or (source := operands[0].shape) is None:
        return outcome
    entries = [entry_axes(entry) for entry in type.spec or (None,) * ndim]
    changes: dict[MeshAxis, Placement] = {}
    taken: dict[MeshAxis, int] = {}
    refusals: list[AxisRefusal] = []
    for axis, dim in cuts.items():
        at = dim + len(source)
        copied = -len(entries) <= dim and not entries[dim] and (at < 0 or source[at] == 1)
        if axis not in type or not type.is_equal(axis) or not copied:
            continue
        if type.get(axis) is I:
            outcome = replace(outcome, grad_matters=True)
            if operands[0].grad:
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
