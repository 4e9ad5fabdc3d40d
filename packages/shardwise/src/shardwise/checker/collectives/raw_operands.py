"""What a raw collective is given: is it of a type that the collective's row admits?

A row admits placements along the call's axis; the reductions of a program admit more: addends where a ring sums by
hand, equal values of which each rank filled in a part, shares that are one n-th of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import gradient_origin, owner_of
from shardwise.interop.calls.located_call import LocatedCall, axis_text, placements_text, report
from shardwise.interop.fixes.annotations import said_first
from shardwise.interop.fixes.collective_calls import meant_axis, over_axis, sum_first
from shardwise.interop.tensors.memory_pieces import Piece
from shardwise.interop.tensors.own_positions import MovedTag
from shardwise.interop.tensors.tagging import pieces_of, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.mesh.regions import cut_along
from shardwise.op_rules.raw_collectives import REDUCERS
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import NORM, P, Placement
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from ..diagnosis.collective_findings import gradient_through_extremum, no_type_on_axis, wrong_source
from ..diagnosis.gradient_findings import elements_text, gradient_sum_not_owed
from ..gradients.averaged_later import before_sum, is_told, may_be_divided, stands_unless_divided
from ..parts.buffer_filling import completed, left_to_others
from ..parts.own_positions import check_combined, check_summed
from ..state.session import CheckSession
from .next_statement import divided_next
from .raw_buffers import admitted
from .raw_pieces import Exchange, refused_pieces

OF_ADDENDS = "the type of addends of a sum that ranks compare, or hand to others as they are"
"""What is listed as lost where a rank's loss is told to all."""
_MOVING = ("gather", "all_to_all", "send")
"""Words in the names of rows that take addends as they are."""
_SUM_OF_EQUAL = "summing {n} equal values multiplies them by {n}"
_OF_EQUAL = {
    **dict.fromkeys(REDUCERS, _SUM_OF_EQUAL),
    "product": "multiplying {n} equal values raises them to the power of {n}",
    "bxor": "the exclusive or of {n} equal values is 0, or the value if {n} is odd",
}
"""What comes of a reduction of equal values that changes them."""


def operand_type(session: CheckSession, exchange: Exchange, tensor: torch.Tensor) -> TensorType:
    """The sent tensor's type; a placement that the row does not admit is reported, that of a part of it too."""
    pieces = pieces_of(tensor)
    types = dict.fromkeys(piece.type for piece in pieces)
    if len(types) < 2:
        return _checked(session, exchange, tensor, type_of(tensor))
    for type in types:
        if type.ground is Ground.ABSENT and type.axes:
            _checked(session, exchange, tensor, type, [piece for piece in pieces if piece.type is type])
    completed(tensor)
    return type_of(tensor)


def _checked(
    session: CheckSession, exchange: Exchange, tensor: torch.Tensor, type: TensorType, within: Sequence[Piece] = ()
) -> TensorType:
    """``within``  the pieces of the tensor that have the type, if it is not that of all of it."""
    axis = exchange.axis
    uncut, type = type, cut_along(type, axis)
    if type.ground is not Ground.ABSENT:
        return type
    axes = parts_of(axis, type)
    operand = _Operand(session, exchange, tensor, within)
    if not axes and operand.is_summed_beside(uncut):
        return UNKNOWN_TYPE
    for one in axes:
        taken = operand.along(one, type)
        if taken is None:
            return UNKNOWN_TYPE
        type = taken
    completed(tensor)
    if operand.sums and isinstance(tag_of(tensor), MovedTag):
        check_summed(session, exchange.name, tensor, axis)
    if exchange.reducer is not None:
        check_combined(session, exchange.name, tensor, axis)
    if not session.local and refused_pieces(exchange, exchange.row.sent, type, tensor.ndim) is not None:
        located = LocatedCall(exchange.name, [(exchange.row.sent, tensor)])
        stuck = refused_pieces(exchange, located.name(0), type, tensor.ndim)
        assert stuck is not None, "what the operand is called changes no verdict"
        report(session, located, stuck, axis)
    return type


class _Operand:
    """One tensor that is handed in, and what its collective takes."""

    def __init__(
        self, session: CheckSession, exchange: Exchange, tensor: torch.Tensor, within: Sequence[Piece]
    ) -> None:
        self.session, self.exchange, self.tensor, self.within = session, exchange, tensor, within
        # A gradient may be summed over groups that no mesh has, such as the first and the last stage of a pipeline.
        self.of_gradients = gradient_origin(tag_of(tensor)) is not None
        self.own = exchange.row.admitted(exchange.reducer)
        self.admits = self.own if self.of_gradients else admitted(exchange.row, exchange.reducer)
        self.sums = exchange.reducer is not None and "P" in self.own

    def is_summed_beside(self, type: TensorType) -> bool:
        """Look at a group that is no part of an axis of ``type``: True if it sums gradients that are equal in it."""
        session, name, axis = self.session, self.exchange.name, self.exchange.axis
        # The reference takes no operand that is not annotated. A message to one rank has no axis: its group only says
        # who could be meant.
        said = bool(type.axes) or self.admits != self.own
        if session.strict and said and self.exchange.row.received and not self.of_gradients:
            _report_untyped(session, self.exchange, self.tensor, self.own)
        # The group may still have several ranks of an axis along which the values are equal.
        return self.sums and any(
            not one.isorthogonal(axis) and gradient_sum_not_owed(session, name, one, self.tensor, type, self.within)
            for one in type.equal_axes
        )

    def along(self, one: MeshAxis, type: TensorType) -> TensorType | None:
        """Look at the placement along ``one``, an axis of the group: the type that is taken; None if it is unknown."""
        session, exchange, tensor = self.session, self.exchange, self.tensor
        name, place = exchange.name, type.get(one)
        if place.is_unknown:
            return type
        if self.sums and place.is_equal and left_to_others(tensor, one.size()):
            return type.rescaled({one: -1})  # each rank has filled in a part, so that the sum counts nothing twice
        if place.is_equal and (repr(place) in self.admits or (self.sums and _is_share(exchange, type, one))):
            return type
        pending = not place.is_extremum and place.reduction is not NORM and place.is_pending_sum(name)
        if self.sums and not pending:
            owner, told = owner_of(tensor), 0 if session.collector is None else session.collector.count
            if owner is not None and is_told(session, owner, one):
                return type
            waiting = None if self.within or not may_be_divided(session, type, one) else owner
            if gradient_sum_not_owed(session, name, one, tensor, type, self.within, forgets=waiting is None):
                if waiting is None:
                    return None
                stands_unless_divided(session, waiting, one, told)
                return before_sum(type, one)
        finished = repr(place) in _extrema(exchange, tensor)
        if finished and tensor.requires_grad:
            located = LocatedCall(name, [(exchange.row.sent, tensor)])
            report(session, located, gradient_through_extremum(name, located.name(0), one, place), one)
            return type
        if finished or repr(place) in self.admits or (pending and self._is_summed_later(one)):
            return type
        if place.is_extremum and self._is_moved_by_hand():
            session.lose("the type of extremes of their own shards that ranks hand to others as they are", user_site())
            return None
        if pending and self._is_count():
            session.lose("the type of whole numbers that each rank counts and hands to others as they are", user_site())
            return None
        if pending and self._is_logged():
            session.lose(OF_ADDENDS, user_site())
            return None if exchange.reducer is None else type.rescaled({one: None})
        _report_not_admitted(session, exchange, tensor, type, one, self.admits, self.within)
        # What follows from the mistake is told no second time.
        return type.rescaled({one: None}) if place.is_equal else type

    def _is_count(self) -> bool:
        """How many of its own tokens go where: of whole numbers the sum is what all ranks have counted, and each rank's
        addend is what the others must know."""
        return self._is_moved_by_hand() and not self.tensor.is_floating_point()

    def _is_logged(self) -> bool:
        """Do ranks tell each other what they have of their own, the worst loss or all of them? No type says more."""
        kept = self.session.only_observed and not self.tensor.requires_grad and not self.of_gradients
        reducer = self.exchange.reducer
        return kept and ((reducer is not None and reducer.name in ("max", "min")) or self._is_moved_by_hand())

    def _is_moved_by_hand(self) -> bool:
        """What each rank has found of its own, such as the best of its part of a vocabulary, is for all to compare."""
        moved = self.exchange.reducer is None and any(word in self.exchange.row.name for word in _MOVING)
        return moved and not self.session.strict

    def _is_summed_later(self, one: MeshAxis) -> bool:
        """Addends are exchanged as they are, as in a ring."""
        message = self.exchange.passed_on and one == self.exchange.axis
        if message:
            self.session.addends_sent.add(one)
        return message or (self.of_gradients and any(word in self.exchange.row.name for word in _MOVING))


def _is_share(exchange: Exchange, type: TensorType, axis: MeshAxis) -> bool:
    """n times one n-th of a value, or n times the value where the next statement divides by n."""
    if type.exponent(axis) == -1:
        return True
    return type.exponent(axis) == 0 and exchange.row.sent == exchange.row.received and divided_next()


def _extrema(exchange: Exchange, tensor: torch.Tensor) -> tuple[str, ...]:
    """The pending extremes that the reduction discharges; of truth values also by bits."""
    name = "" if exchange.reducer is None else exchange.reducer.name
    of_bits = {"bor": ("P(max)",), "band": ("P(min)",)} if tensor.dtype is torch.bool else {}
    return {"max": ("P(max)",), "min": ("P(min)",), **of_bits}.get(name, ())


def _report_untyped(session: CheckSession, exchange: Exchange, tensor: torch.Tensor, own: Sequence[str]) -> None:
    """Report an operand that has a type along other axes only. ``own``: what the row admits."""
    axis = exchange.axis
    located = LocatedCall(exchange.name, [(exchange.row.sent, tensor)])
    first, *others = own
    choice = f" (or {', '.join(others)})" if others else ""
    way = f"assert_type({located.name(0)}, {{{axis_argument(axis)}: {first}}}) where it is made{choice}"
    untyped = no_type_on_axis(exchange.name, located.name(0), axis, way)
    report(session, located, replace(untyped, fixes=said_first(located, axis, first, way)), axis)


def _report_not_admitted(
    session: CheckSession,
    exchange: Exchange,
    tensor: torch.Tensor,
    type: TensorType,
    one: MeshAxis,
    admits: Sequence[str],
    within: Sequence[Piece],
) -> None:
    """Report what is sent with a placement along ``one`` that is none of ``admits``, with the edits that mend it."""
    row, place = exchange.row, type.get(one)
    located = LocatedCall(exchange.name, [(row.sent, tensor)])
    told = _not_admitted(exchange, located.name(0), one, place, admits)
    in_place = row.sent == row.received
    if place.is_equal and in_place and told.help:
        told = replace(told, fixes=located.removed(told.help[0]))
        meant = meant_axis(type, one, lambda other: other is P) if exchange.name == "all_reduce" else None
        if meant is not None:
            way = f"{exchange.name} over {axis_text(meant)}, along which {located.name(0)} is a partial sum"
            fixes = (*over_axis(located.location, meant, way, raw=True), *told.fixes)
            told = replace(told, help=(way, *told.help), fixes=fixes)
    if place is P and told.help:
        fixes = sum_first(located.location, located.names[0], one, told.help[0], written=in_place)
        told = replace(told, fixes=fixes)
    if within:
        told = replace(told, facts=(*told.facts, f"that is so of {elements_text(tensor, within)}"))
    report(session, located, told, one)


def _not_admitted(exchange: Exchange, name: str, one: MeshAxis, place: Placement, admitted: Sequence[str]) -> Diagnosis:
    """What is said of an operand called ``name`` with a placement that the call does not take."""
    op, axis = exchange.name, exchange.axis
    words = placements_text(admitted)
    said = wrong_source(op, name, words, axis_text(one), place)
    if place.is_extremum and place.reduction is not None:
        fact = f"{name} is a pending {place.reduction} over {axis_text(one)}: it is finished by that reduction alone"
        way = f"dist.all_reduce({name}, op=dist.ReduceOp.{place.reduction.name.upper()}, group=...) first"
        return replace(said, code="SW210", facts=(fact,), help=(way,))
    if place.reduction is NORM:
        fact = f"{name} is a pending norm over {axis_text(one)}: the root of the sum of the ranks' squares"
        way = f"all_reduce({name}.square(), {axis_argument(one)}, src=P, dst=R).sqrt() first"
        return replace(said, code="SW210", facts=(fact,), help=(way,))
    if place is P:
        fact = f"every rank would hand in its own addend of {name}, and the sum is never made"
        way = f"all_reduce({name}, {axis_argument(one)}, src=P, dst=R) before {op}"
        return replace(said, code="SW210", facts=(fact,), help=(way,))
    alone = (f"use {name} as it is, without {op}",)
    if not place.is_equal:
        way = f"reinterpret({name}, {axis_argument(one)}, src={place!r}, dst=P)"
        return replace(said, help=(f"{way} first, if the ranks' values are addends",))
    if exchange.reducer is None:
        return replace(said, facts=(f"every rank has {name} already",), help=alone)
    return replace(said, facts=(_OF_EQUAL[exchange.reducer.name].format(n=axis.size()),), help=alone)
