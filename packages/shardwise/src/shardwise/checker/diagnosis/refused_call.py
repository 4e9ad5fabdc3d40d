"""A call that was refused along one axis, as the words about it need it: names, sizes, what was tried."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shardwise.diagnostics.fix import Edit, Fix, Wrap
from shardwise.interop.calls.located_call import LocatedCall, axis_text, provenance
from shardwise.interop.fixes.annotations import moved_in_place
from shardwise.interop.fixes.expressions import is_copied
from shardwise.interop.fixes.scales import multiplied_by_size
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.call_types import AxisRefusal
from shardwise.op_rules.propagation.dim_labels import Call
from shardwise.op_rules.propagation.local import Refusal, Weak, local_rules
from shardwise.op_rules.propagation.operand import Bound, sharded_dim
from shardwise.op_rules.propagation.sharded import Sharded, sharded_rule
from shardwise.op_rules.schema import OpRule
from shardwise.op_rules.transitions import find_transition
from shardwise.planner.repairs import contraction_repairs, local_repairs
from shardwise.planner.search import Repair, Step
from shardwise.types.placement import P, Placement, R, V
from shardwise.types.tensor_type import Ground, TensorType

from .scale_texts import scale_text


@dataclass(frozen=True)
class RefusedCall:
    """One refusal of a call.

    ``operands``  the operands of the call, and ``located`` how the program writes them.
    ``at``        the axis and the refusal on it.
    ``blocked``   why the rule's linear law does not hold for this call, or None.
    ``call``      the call as its labels see it, in global mode.
    """

    op: str
    rule: OpRule
    operands: Sequence[Bound]
    located: LocatedCall
    at: AxisRefusal
    blocked: str | None = None
    call: Call | None = None

    @property
    def spots(self) -> Sequence[int]:
        """For each position that the refusal counts, that of the call's operand: those on the axis may be fewer."""
        return self.at.positions or range(len(self.operands))

    @functools.cached_property
    def culprits(self) -> list[int]:
        return [self.spots[position] for position in self.at.refusal.culprits]

    @functools.cached_property
    def others(self) -> list[int]:
        return [self.spots[position] for position in self.at.refusal.others]

    @property
    def reason(self) -> str:
        return self.at.refusal.reason

    @property
    def axis(self) -> str:
        """The axis as messages name it; empty if the refusal is about none."""
        return "" if self.at.axis is None else axis_text(self.at.axis)

    @property
    def argument(self) -> str:
        """The axis as a program may spell it."""
        return axis_argument(self.at.axis)

    @property
    def size(self) -> int:
        return 0 if self.at.axis is None else self.at.axis.size()

    @property
    def first(self) -> str:
        """The name of the first operand at fault."""
        return self.name(self.culprits[0]) if self.culprits else "an operand"

    def name(self, position: int) -> str:
        return self.located.name(position)

    def placed(self, position: int) -> str:
        """``h (V)``."""
        type = self.operands[position].type
        place = type.get(self.at.axis) if isinstance(type, TensorType) else None
        return f"{self.name(position)} ({place!r})" if place is not None else self.name(position)

    def scaled(self, position: int) -> str:
        """``h is 2 times too large``."""
        type = self.operands[position].type
        exponent = type.exponent(self.at.axis) if isinstance(type, TensorType) else 0
        return f"{self.name(position)} {scale_text(self.at.axis, exponent or 0)}"

    def cut(self, position: int) -> str:
        """``h (dim 1)``."""
        dim = sharded_dim(self.operands[position].type, self.at.axis)
        return self.name(position) if dim is None else f"{self.name(position)} (dim {dim})"

    @property
    def listed(self) -> str:
        """The operands at fault, with the dims on which they are sharded."""
        return " and ".join(self.cut(position) for position in self.culprits)

    def fix(self, help: str, steps: Sequence[tuple[int, Step]], *, choice: bool = False) -> tuple[Fix, ...]:
        """The edits that take operands, given by position, through steps; none where the source does not show them all.

        What the call writes into gets its name anew before it: a copy of it would be changed in its place.
        """
        edits: list[Edit] = []
        for position, step in steps:
            location, options = self.located.names[position][1], self.options(position, step)
            if location is None:
                return ()
            if position == 0 and self._writes and not is_copied(self.located.location, location):
                edits += moved_in_place(self.located, step.op, self.argument, repr(step.src), repr(step.dst), options)
            else:
                edits.append(Wrap(location, step.op, self.argument, repr(step.src), repr(step.dst), options))
        return (Fix(help, tuple(edits), choice=choice),) if len(edits) == len(steps) else ()

    @property
    def _writes(self) -> bool:
        """Does the call write into its first operand?"""
        return self.op.endswith("_") or self.op in ("setitem", "index_put")

    def options(self, position: int, step: Step) -> str:
        """The further arguments that a step needs to be accepted and right."""
        row = find_transition(step.op, step.src, step.dst)
        return "expert_mode=True" if row is not None and row.expert else self.averaging(position, step)

    def averaging(self, position: int, step: Step) -> str:
        """The argument with which a step takes the average of what is n times too large as a sum; else empty."""
        type = self.operands[position].type
        if not isinstance(type, TensorType) or step.op not in ("all_reduce", "reduce_scatter"):
            return ""
        exponent = type.exponent(self.at.axis)
        too_large = exponent == 1 or (exponent is None and self._stands_for_sum(position))
        return 'op="avg"' if too_large else ""

    def _stands_for_sum(self, position: int) -> bool:
        """Does the program multiply the operand by the number of ranks, as if all of them had the same addend?"""
        axis = self.at.axis
        return axis is not None and multiplied_by_size(self.located, position, axis)

    def doubt(self, steps: Sequence[tuple[int, Step]]) -> str:
        """What a repair depends on; empty if it is sure."""
        return self._doubt_of_scale(steps) or self._doubt_of_addend(steps)

    def _doubt_of_scale(self, steps: Sequence[tuple[int, Step]]) -> str:
        """A repair may sum what nobody knows the scale of: a factor may stand for the sum.

        Of what the program itself calls a term of a sum, by ``reinterpret``, there is no doubt.
        """
        for position, step in steps:
            type = self.operands[position].type
            unknown = isinstance(type, TensorType) and self.at.axis in type and type.exponent(self.at.axis) is None
            summed = step.op in ("all_reduce", "reduce_scatter") and not self.averaging(position, step)
            if unknown and summed and not self._is_declared(position):
                return f", if {self.name(position)} has the scale of an addend, which is not known"
        return ""

    def _doubt_of_addend(self, steps: Sequence[tuple[int, Step]]) -> str:
        """A repair may mix what varies with what is replicate, and what varies may be an addend of a sum to come.

        Example: in ``h @ w + b``, where w is cut along the dim that is contracted, a sum over the ranks has b n times.
        """
        if self.at.refusal.code != "SW101" or any(step.dst is not R for _, step in steps):
            return ""
        moved = dict(zip(self.spots, (given.placement for given in self.at.givens), strict=False))
        moved |= {position: R for position, _ in steps}
        varying = [at for at, place in moved.items() if place is V]
        moved |= dict.fromkeys(varying, R)
        unplaced = [at for at in varying if sharded_dim(self.operands[at].type, self.at.axis) is None]
        if not any(self._adds_to(moved | {at: P}) for at in unplaced):
            return ""
        names = " and ".join(map(self.name, varying))
        made = names if len(varying) == 1 else f"what {self.op} makes of {names}"
        once = " and ".join(self.name(position) for position, _ in steps)
        return f", if {made} is no addend of a sum over {self.axis}; else {once} is added after that sum"

    def _adds_to(self, places: Mapping[int, Placement | Weak]) -> bool:
        """With these placements, is something added to a pending sum that is none?"""
        givens = [replace(one, placement=place) for one, place in zip(self.at.givens, places.values(), strict=True)]
        found = local_rules(self.rule, givens, blocked=self.blocked)
        return isinstance(found, Refusal) and found.code == "SW113"

    def _is_declared(self, position: int) -> bool:
        since = provenance(self.located.values[position], self.at.axis)
        return bool(since) and since[0].text.endswith("since this reinterpret")

    def around(self, position: int, dim: int) -> tuple[Fix, ...]:
        """The edits that gather an operand before the call, and keep this rank's piece of what the call gives."""
        location, whole = self.located.names[position][1], self.located.location
        if location is None or whole is None or location == whole or self.op.endswith("_"):
            return ()
        name, cut = self.name(position), f"S({dim})"
        help = (
            f"all_gather({name}, {self.argument}, src={cut}, dst=R) before {self.op}, and "
            f"convert(..., {self.argument}, src=R, dst={cut}) of its result, for this rank's piece"
        )
        gather = Wrap(location, "all_gather", self.argument, cut, "R")
        return (Fix(help, (gather, Wrap(whole, "convert", self.argument, "R", cut))),)

    @functools.cached_property
    def repairs(self) -> list[Repair[Any]]:
        """What mends the call along the axis by the local rule alone, by steps of tensors: numbers take none."""
        if not self.at.givens or self.at.refusal.code in ("SW150", "SW151"):
            return []  # where scales differ, placements are right, and another one has the same scale
        if contracted := self._contracted:
            cut = [at for at, spot in enumerate(self.spots) if spot in contracted]
            found = contraction_repairs(self.rule, self.at.givens, cut)
        else:
            found = local_repairs(self.rule, self.at.givens, blocked=self.blocked)
        return [one for one in found if all(self._is_tensor(self.spots[step.position]) for step in one.steps)]

    @property
    def _contracted(self) -> list[int]:
        """The operands that have a dim which the axis shards and the call contracts, so that its sum is pending."""
        if self.call is None or self.rule.labels is None or self.at.axis is None:
            return []
        tensors = [at for at, operand in enumerate(self.operands) if operand.shape is not None]
        sharded = [sharded_along(self.operands[at], self.at.axis) for at in tensors]
        cut = bool(self.call.tensors) and any(one.dim is not None for one in sharded)
        labelling = self.rule.labels(self.call.along(self.at.axis)) if cut else None
        if labelling is None:
            return []
        placed = sharded_rule(labelling, sharded, partials=True)
        if isinstance(placed, Refusal) or placed.placement is not P or placed.total:
            return []
        return [at for at, one in zip(tensors, sharded, strict=True) if one.dim is not None]

    def _is_tensor(self, position: int) -> bool:
        return isinstance(self.located.values[position], torch.Tensor)


def sharded_along(operand: Bound, axis: MeshAxis) -> Sharded:
    """What an operand is along the axis, for the global rule."""
    if isinstance(operand.type, Weak):
        return Sharded(None)
    uniform = operand.type.ground in (Ground.ZERO, Ground.UNIFORM)
    return Sharded(operand.type.get(axis), sharded_dim(operand.type, axis), uniform, axis in operand.type.uneven)
