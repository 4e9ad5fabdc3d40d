"""Raw ``torch.distributed`` calls: checked by their row in ``op_rules/raw_collectives.py`` before they run.

The functional collectives of ``torch.ops._c10d_functional`` have rows of their own: they return their result. A call on
a group of one rank is nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop import alias
from shardwise.interop.autograd.gradient_origin import gradient_origin, origin_after
from shardwise.interop.calls.located_call import LocatedCall, axis_text, placements_text, report
from shardwise.interop.calls.tracing import is_tracing
from shardwise.interop.fixes.annotations import said_first
from shardwise.interop.fixes.collective_calls import meant_axis, over_axis, sum_first
from shardwise.interop.tensors.memory_pieces import Piece
from shardwise.interop.tensors.tagging import Tag, pieces_of, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import (
    FUNCTIONAL_NAMESPACES,
    WAITS,
    OpOverload,
    OpOverloadPacket,
    group_named,
    qualified_name,
)
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.mesh.regions import cut_along, put_together
from shardwise.op_rules.raw_collectives import FUNCTIONAL, RAW, REDUCERS, RawCollective, Reducer
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import UNKNOWN, P, PerMeshAxisLocalSpmdType, Placement
from shardwise.types.spec import PartitionSpec, partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..diagnosis.collective_findings import (
    gradient_through_extremum,
    no_type_on_axis,
    unknown_collective,
    wrong_source,
)
from ..diagnosis.gradient_findings import elements_text, gradient_sum_not_owed
from ..operators.buffer_filling import completed, left_to_others
from ..operators.in_flight import check_collective
from ..operators.ordinary import Handler
from ..operators.row_orders import order_of, set_order
from ..operators.varying_lengths import check_raw_shapes
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .differentiable import check_operand, check_passed_on
from .divergence import check_arrival
from .gathered_lists import note_gathered
from .handles import started
from .next_statement import divided_next
from .raw_arrivals import receipt
from .raw_backward import leave_node, passages
from .raw_buffers import admitted, as_declared, check_buffers
from .raw_pieces import Exchange, exchange_of, received_spec, refused_pieces, uneven_after
from .rearranged_dims import dim_meant
from .rows_exchanged import order_after

_USUAL = {"reduce_scatter_single": "reduce_scatter_tensor", "all_gather_single": "all_gather_into_tensor"}
"""What programs call the functions that torch 2.13 renamed and keeps under both names."""
_MOVING = ("gather", "all_to_all", "send")
"""Words in the names of rows that take addends as they are."""
_SUM_OF_EQUAL = "summing {n} equal values multiplies them by {n}"
_OF_EQUAL = {
    **dict.fromkeys(REDUCERS, _SUM_OF_EQUAL),
    "product": "multiplying {n} equal values raises them to the power of {n}",
    "bxor": "the exclusive or of {n} equal values is 0, or the value if {n} is odd",
}
"""What comes of a reduction of equal values that changes them."""
_MESSAGES = ("isend", "irecv")
_QUIET = {"barrier", "monitored_barrier", "get_rank", "get_world_size"}


def raw_handler(func: TorchFunction) -> Handler | None:
    """The handler for a raw collective; None if ``func`` is not one."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        namespace, _, name = qualified_name(func).partition("::")
        if namespace not in FUNCTIONAL_NAMESPACES:
            return None
        name = name.split(".")[0]
        return _same_value if name in WAITS else _raw(name, FUNCTIONAL)
    if getattr(func, "__module__", "") == dist.all_reduce.__module__:
        return _raw(func.__name__, RAW)
    return None


def _same_value(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """Waiting for a functional collective changes nothing about its result's type."""
    result = func(*args, **kwargs)
    tag = tag_of(args[0]) if args else None
    if tag is not None and isinstance(result, torch.Tensor):
        set_tag(result, Tag(tag.current(), tag.origin))
        if isinstance(args[0], torch.Tensor):
            set_order(session, result, order_of(args[0]))
    return result


def _raw(name: str, rows: Mapping[str, RawCollective]) -> Handler:
    usual = _USUAL.get(name, name)

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        if is_dtensor_call(args, kwargs) or name in _QUIET:
            return func(*args, **kwargs)
        row = rows.get(name)
        if row is None:
            return _no_row(session, usual, func, args, kwargs)
        given = dict(zip(row.params.split(), args, strict=False)) | dict(kwargs)
        reducer = _reducer(given) if row.reduces else None
        axis = _axis_of(given.get("group") or given.get("group_name"))
        if axis is None or axis.size() == 1:
            result = func(*args, **kwargs)
            if row.functional and isinstance(result, torch.Tensor) and (tag := tag_of(given[row.sent])) is not None:
                set_tag(result, Tag(tag.current(), tag.origin))
            return result
        sent = _tensors(given.get(row.sent))
        if session.diverging:
            check_arrival(session, usual, sent[0] if sent else None, axis)
        if session.in_flight:
            check_collective(session, usual, sent, _tensors(given.get(row.received)), _ordered(usual, given))
        exchange = exchange_of(row, usual, axis, given, dim_meant() if row.functional else 0, reducer)
        types = [_check(session, exchange, tensor) for tensor in sent]
        if row.functional and torch.is_grad_enabled():
            look = check_passed_on if usual == "broadcast" else check_operand
            for tensor, type in zip(sent, types, strict=True):
                look(session, usual, axis, tensor, type)
        if row.sent != row.received and alias.is_installed():
            check_buffers(session, exchange, _tensors(given.get(row.received)), types)
        check_raw_shapes(session, row, usual, axis, sent, given)
        shown = [typed_shape(tensor) for tensor in sent] if is_tracing() else []
        left_out = passages(usual, axis, sent, types, reducer) if row.sent == row.received else []
        result = func(*args, **kwargs)
        for tensor, passage in zip(sent, left_out, strict=False):
            leave_node(tensor, passage)
        order = () if session.local else order_after(session, exchange, sent, types, given)
        if any(type.axes for type in types):
            session.checked += 1
        else:
            session.unchecked += 1
        received = _tensors(result if row.functional else given.get(row.received))
        dims = sent[0].ndim if sent else 0
        bases: Sequence[TensorType | None] = types
        if row.sent != row.received:
            bases = [types[0] if types else None] * len(received)
        site, text = user_site(1), f"{_word(row.gives)} over {axis!r} since this {usual}"
        arrivals = [
            receipt(
                session,
                tensor,
                base,
                exchange,
                sent,
                origin_after(tensor, site, text),
                lambda one, tensor=tensor: _received(session, tensor, one, exchange, dims),  # type: ignore[misc]
            )
            for tensor, base in zip(received, bases, strict=False)
            if isinstance(tensor, torch.Tensor)
        ]
        if row.name == "all_gather" and not session.local and types:
            note_gathered(axis, types[0], received)
        for tensor in received if row.sent != row.received else ():
            set_order(session, tensor, order)
        early = bool(given.get("async_op")) or usual in _MESSAGES
        reading = [tensor for tensor in sent if row.sent != row.received]
        result = started(session, usual, result, arrivals, reading, _ordered(usual, given), returns_early=early)
        if is_tracing() and not isinstance(result, dist.Work):
            log_result(usual, shown, received)
        return result

    return handle


def _ordered(name: str, given: Mapping[str, object]) -> object:
    """The group whose collectives come one after the other; None for a message, which comes when it comes."""
    return None if name in _MESSAGES or name in ("send", "recv") else given.get("group") or dist.group.WORLD


def _reducer(given: Mapping[str, object]) -> Reducer:
    """The reduction that is asked for, as an object, a word, or not at all."""
    asked = given.get("op", given.get("reduce_op", given.get("reduceOp", dist.ReduceOp.SUM)))
    if isinstance(asked, str):
        return REDUCERS.get(asked.lower(), REDUCERS["premul_sum"])
    return next(one for name, one in REDUCERS.items() if asked == getattr(dist.ReduceOp, name.upper()))


def _axis_of(group: object) -> MeshAxis | None:
    if isinstance(group, str):
        group = group_named(group)
    if group is None:
        group = dist.group.WORLD
    if group is None or group is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    return MeshAxis.of(group)


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (list, tuple)) else []


def _check(session: CheckSession, exchange: Exchange, tensor: torch.Tensor) -> TensorType:
    """The sent tensor's type; a placement that the row does not admit is reported, that of a part of it too."""
    pieces = pieces_of(tensor)
    types = dict.fromkeys(piece.type for piece in pieces)
    if len(types) < 2:
        return _check_type(session, exchange, tensor, type_of(tensor))
    for type in types:
        if type.ground is Ground.ABSENT and type.axes:
            _check_type(session, exchange, tensor, type, [piece for piece in pieces if piece.type is type])
    completed(tensor)
    return type_of(tensor)


def _check_type(
    session: CheckSession, exchange: Exchange, tensor: torch.Tensor, type: TensorType, within: Sequence[Piece] = ()
) -> TensorType:
    """``within``  the pieces of the tensor that have the type, if it is not that of all of it."""
    row, name, axis = exchange.row, exchange.name, exchange.axis
    uncut, type = type, cut_along(type, axis)
    if type.ground is not Ground.ABSENT:
        return type
    axes = parts_of(axis, type)
    located = None
    # A message to one rank has no axis: the group only says who could be meant.
    # A gradient may be summed over groups that no mesh has, such as the first and the last stage of a pipeline.
    own = row.admitted(exchange.reducer)
    admits = own if gradient_origin(tag_of(tensor)) is not None else admitted(row, exchange.reducer)
    said = bool(type.axes) or admits != own  # the reference takes no operand that is not annotated
    if not axes and session.strict and said and row.received and gradient_origin(tag_of(tensor)) is None:
        located = LocatedCall(name, [(row.sent, tensor)])
        first, *others = own
        choice = f" (or {', '.join(others)})" if others else ""
        way = f"assert_type({located.name(0)}, {{{axis_argument(axis)}: {first}}}) where it is made{choice}"
        untyped = no_type_on_axis(name, located.name(0), axis, way)
        report(session, located, replace(untyped, fixes=said_first(located, axis, first, way)), axis)
    sums = exchange.reducer is not None and "P" in own
    for one in uncut.equal_axes if sums and not axes else ():
        # The group is no part of an axis along which the values are equal, and has several of its ranks.
        if not one.isorthogonal(axis) and gradient_sum_not_owed(session, name, one, tensor, uncut, within):
            return UNKNOWN_TYPE
    for one in axes:
        place = type.get(one)
        if place.is_unknown:
            continue
        if sums and place.is_equal and left_to_others(tensor, one.size()):
            type = type.rescaled({one: -1})  # each rank has filled in a part, so that the sum counts nothing twice
            continue
        if sums and place.is_equal and _is_share(exchange, type, one):
            continue
        if place.is_equal and repr(place) in admits:
            continue
        pending = not place.is_extremum and place.is_pending_sum(name)
        if sums and not pending and gradient_sum_not_owed(session, name, one, tensor, type, within):
            return UNKNOWN_TYPE
        if place.is_extremum and tensor.requires_grad and repr(place) in _extrema(exchange, tensor):
            located = LocatedCall(name, [(row.sent, tensor)])
            report(session, located, gradient_through_extremum(name, located.name(0), one, place), one)
            continue
        if repr(place) in admits or repr(place) in _extrema(exchange, tensor):
            continue
        moved = any(word in row.name for word in _MOVING) and gradient_origin(tag_of(tensor)) is not None
        message = exchange.passed_on and one == axis
        if pending and message:
            session.addends_sent.add(axis)
        if pending and (moved or message):
            continue  # addends are exchanged as they are, to be summed afterwards, as in a ring
        located = LocatedCall(name, [(row.sent, tensor)])
        told = _not_admitted(exchange, located.name(0), one, place, admits)
        if place.is_equal and row.sent == row.received and told.help:
            told = replace(told, fixes=located.removed(told.help[0]))
            meant = meant_axis(type, one, lambda other: other is P) if name == "all_reduce" else None
            if meant is not None:
                way = f"{name} over {axis_text(meant)}, along which {located.name(0)} is a partial sum"
                fixes = (*over_axis(located.location, meant, way, raw=True), *told.fixes)
                told = replace(told, help=(way, *told.help), fixes=fixes)
        if place is P and told.help:
            written = row.sent == row.received
            fixes = sum_first(located.location, located.names[0], one, told.help[0], written=written)
            told = replace(told, fixes=fixes)
        if within:
            told = replace(told, facts=(*told.facts, f"that is so of {elements_text(tensor, within)}"))
        report(session, located, told, one)
        if place.is_equal:
            type = type.rescaled({one: None})  # what follows from the mistake is told no second time
    completed(tensor)
    if not session.local and refused_pieces(exchange, row.sent, type, tensor.ndim) is not None:
        located = located or LocatedCall(name, [(row.sent, tensor)])
        stuck = refused_pieces(exchange, located.name(0), type, tensor.ndim)
        assert stuck is not None, "what the operand is called changes no verdict"
        report(session, located, stuck, axis)
    return type


def _received(
    session: CheckSession, tensor: torch.Tensor, base: TensorType | None, exchange: Exchange, sent_ndim: int
) -> TensorType | None:
    """The type of a received tensor; a buffer of its own may have declared it."""
    arrived = _arrived(session, tensor, base, exchange, sent_ndim)
    return as_declared(tensor, arrived) if exchange.row.sent != exchange.row.received else arrived


def _is_share(exchange: Exchange, type: TensorType, axis: MeshAxis) -> bool:
    """n times one n-th of a value, or n times the value where the next statement divides by n."""
    if type.exponent(axis) == -1:
        return True
    return type.exponent(axis) == 0 and exchange.row.sent == exchange.row.received and divided_next()


def _word(gives: str) -> str:
    """The placement that a row gives, in a word; of a row that gives none its result is unknown."""
    return PerMeshAxisLocalSpmdType(gives).word if gives else "unknown"


def _extrema(exchange: Exchange, tensor: torch.Tensor) -> tuple[str, ...]:
    """The pending extremes that the reduction discharges; of truth values also by bits."""
    name = "" if exchange.reducer is None else exchange.reducer.name
    of_bits = {"bor": ("P(max)",), "band": ("P(min)",)} if tensor.dtype is torch.bool else {}
    return {"max": ("P(max)",), "min": ("P(min)",), **of_bits}.get(name, ())


def _not_admitted(exchange: Exchange, name: str, one: MeshAxis, place: Any, admitted: Sequence[str]) -> Diagnosis:
    """What is said of an operand called ``name`` with a placement that the call does not take."""
    op, axis = exchange.name, exchange.axis
    words = placements_text(admitted)
    said = wrong_source(op, name, words, axis_text(one), place)
    if place.is_extremum:
        fact = f"{name} is a pending {place.reduction} over {axis_text(one)}: it is finished by that reduction alone"
        way = f"dist.all_reduce({name}, op=dist.ReduceOp.{place.reduction.name.upper()}, group=...) first"
        return replace(said, code="SW210", facts=(fact,), help=(way,))
    if place is P:
        fact = f"every rank would hand in its own addend of {name}, and the sum is never made"
        way = f"all_reduce({name}, {axis_argument(one)}, src=P, dst=R) first"
        return replace(said, code="SW210", facts=(fact,), help=(way,))
    alone = (f"use {name} as it is, without {op}",)
    if not place.is_equal:
        way = f"reinterpret({name}, {axis_argument(one)}, src={place!r}, dst=P)"
        return replace(said, help=(f"{way} first, if the ranks' values are addends",))
    if exchange.reducer is None:
        return replace(said, facts=(f"every rank has {name} already",), help=alone)
    return replace(said, facts=(_OF_EQUAL[exchange.reducer.name].format(n=axis.size()),), help=alone)


def _arrived(
    session: CheckSession, tensor: torch.Tensor, base: TensorType | None, exchange: Exchange, sent_ndim: int
) -> TensorType | None:
    """The type of a received tensor: that of what was sent, with the collective's result along its axis.

    ``sent_ndim``  how many dims that has.
    """
    row, axis = exchange.row, exchange.axis
    sent_unknown = base is not None and base.ground is Ground.UNKNOWN
    if base is None or sent_unknown:
        base, sent_ndim = type_of(tensor), tensor.ndim
    if not base.axes and base.ground is Ground.ABSENT and type_of(tensor).ground.is_constant:
        return base  # what nobody has typed has been written over the zeros
    if base.ground is Ground.UNKNOWN or (not base.axes and base.ground is Ground.ABSENT):
        return None
    if base.axes and not base.local:
        return None  # nothing is known along any axis: the result of a rejected call
    if base.ground is Ground.ZERO and row.sent == row.received:
        return None  # whatever is done to zeros that all ranks have, they stay zeros
    base = cut_along(base, axis)
    axes = parts_of(axis, base) or (axis,)
    mesh = current_entry()
    if any(one not in axes and not one.isorthogonal(axis) for one in base.axes):
        session.lose(f"the type of what {exchange.name} leaves over ranks that are no part of an axis", user_location())
        return base
    outside = mesh is not None and axis not in mesh.axes
    if not row.sent and base.ground is not Ground.ABSENT and (outside or not session.strict):
        return UNTYPED  # a message has its sender's type, which the program may give it
    # Ranks that send their addends to each other receive such: whoever puts them together knows of which sum.
    of_sums = not row.sent and (axis in session.addends_sent or any(base.is_partial(one) for one in axes))
    place: Placement = UNKNOWN if of_sums else PerMeshAxisLocalSpmdType(row.gives)
    handed_back = row.sent == row.received and bool(row.sent)
    after = {one: base.get(one) if handed_back and base.is_equal(one) else place for one in axes}
    placements = {**{a: base.get(a) for a in base.axes}, **after}
    if sent_unknown and mesh is not None and mesh.axes.issuperset(axes):
        placements = {**dict.fromkeys(mesh.axes, UNKNOWN), **placements}
    if session.local or (base.spec is not None and len(base.spec) != sent_ndim):
        arrived = TensorType.of(placements, scale=_scale_after(exchange, base, axes))
    else:
        spec = received_spec(exchange, base, tensor.ndim, sent_ndim)
        scale = _scale_after(exchange, base, axes)
        unsaid = [one for one in axes if _is_moved(exchange, placements[one], one, spec)]
        if unsaid:
            session.lose(f"which part of the whole {exchange.name} leaves on each rank", user_location())
            placements |= dict.fromkeys(unsaid, UNKNOWN)
        arrived = TensorType.of(placements, spec, uneven=uneven_after(exchange, base), scale=scale)
    return arrived if mesh is None else put_together(arrived, mesh.ordered_axes)


def _is_moved(exchange: Exchange, place: Placement, axis: MeshAxis, spec: PartitionSpec | None) -> bool:
    """True if an exchange leaves pieces that only whoever puts them together knows the place of."""
    mesh = current_entry()
    if "all_to_all" not in (exchange.row.name, exchange.row.pieces) or (mesh is not None and axis in mesh.local_axes):
        return False
    return place.is_varying and partition_spec_get_shard(spec, axis) is None


def _scale_after(exchange: Exchange, before: TensorType, axes: Sequence[MeshAxis]) -> dict[MeshAxis, int | None]:
    """The scale of the result: a sum counts equal values once per rank, an average divides."""
    if not exchange.row.sent:
        return dict.fromkeys(before.axes)
    if before.ground in (Ground.CONSTANT, Ground.EMPTY):
        return dict.fromkeys(axes)  # what has been written into constants or new memory may be anything
    reducer, scale = exchange.reducer, dict(before.scale_under(dict.fromkeys(axes, UNKNOWN)))
    if reducer is None:
        # What is exchanged piece by piece is a list of whatever the pieces are.
        return {**scale, **dict.fromkeys(axes)} if exchange.row.gives == "V" else scale
    for axis in axes:
        exponent = before.exponent(axis)
        if reducer.name in ("sum", "avg"):
            summed = before.is_equal(axis)
            exponent = None if before.is_varying(axis) else exponent
            scale[axis] = None if exponent is None else exponent + int(summed) - int(reducer.divides)
        elif not reducer.known or (exponent != 0 and reducer.name not in ("max", "min")):
            scale[axis] = None
    return scale


def _no_row(session: CheckSession, name: str, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """A collective without a row: fine on tensors that have no type."""
    typed = [t for value in (*args, *kwargs.values()) for t in _tensors(value) if type_of(t).axes]
    if typed and session.strict:
        located = LocatedCall(name, [("tensor", typed[0])])
        report(session, located, unknown_collective(name, located.name(0)))
    return func(*args, **kwargs)
