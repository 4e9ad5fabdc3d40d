"""Raw ``torch.distributed`` calls: checked by their row in ``op_rules/raw_collectives.py`` before they run.

The functional collectives of ``torch.ops._c10d_functional`` have rows of their own: they return their result. A call on
a group of one rank is nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_site
from shardwise.interop import alias
from shardwise.interop.autograd.gradient_origin import origin_after
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.calls.tracing import is_tracing
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.interop.tensors.zeros import forget_zeros
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
from shardwise.op_rules.raw_collectives import FUNCTIONAL, RAW, REDUCERS, RawCollective, Reducer
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import UNKNOWN, PerMeshAxisLocalSpmdType
from shardwise.types.tensor_type import TensorType

from ..diagnosis.collective_findings import unknown_collective
from ..operators.in_flight import check_collective
from ..operators.ordinary import Handler
from ..parts.passed_pieces import note_exchanged_by_hand, note_made_equal, note_passed
from ..parts.row_orders import order_of, set_order
from ..parts.varying_lengths import check_raw_shapes
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession, any_known
from ..state.tensor_classes import is_dtensor_call
from .differentiable import check_operand, check_passed_on
from .divergence import check_arrival
from .gathered_lists import check_scattered, note_gathered
from .handles import started
from .one_rank import check_sender, note_reduced
from .raw_arrivals import Receipt, receipt
from .raw_backward import leave_node, passages
from .raw_buffers import check_buffers
from .raw_operands import operand_type
from .raw_pieces import Exchange, exchange_of
from .raw_results import result_type
from .rearranged_dims import dim_meant
from .rows_exchanged import order_after
from .stacked_rows import StackedRows

_USUAL = {"reduce_scatter_single": "reduce_scatter_tensor", "all_gather_single": "all_gather_into_tensor"}
"""What programs call the functions that torch 2.13 renamed and keeps under both names."""
_MESSAGES = ("isend", "irecv")
_BETWEEN_TWO = (*_MESSAGES, "send", "recv")
_SENDING_TO_ALL = ("broadcast", "all_gather", "all_gather_into_tensor")
_SPREADING = (*_BETWEEN_TWO, "broadcast", "scatter")
"""What hands data on: whose it was, is no question of sums."""
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
        axis = _axis_of(given.get("group") or given.get("group_name"))
        if axis is None or axis.size() == 1:
            return _of_one_rank(row, given, func(*args, **kwargs))
        reducer = _reducer(given) if row.reduces else None
        exchange = exchange_of(row, usual, axis, given, dim_meant() if row.functional else 0, reducer)
        sent = tensors_in(given.get(row.sent))
        told = 0 if session.collector is None else session.collector.count
        types = _types_sent(session, exchange, given, sent)
        shown = [typed_shape(tensor) for tensor in sent] if is_tracing() else []
        left_out = passages(usual, axis, sent, types, reducer) if row.sent == row.received else []
        result = func(*args, **kwargs)
        for tensor, passage in zip(sent, left_out, strict=False):
            leave_node(tensor, passage)
        if any(type.axes for type in types):
            session.checked += 1
        else:
            session.unchecked += 1
        received = tensors_in(result if row.functional else given.get(row.received))
        if session.untyped is not None and usual not in _SPREADING and not any_known(axis, types):
            session.untyped.exchanged(usual, received)
        if session.untyped is not None and row.reduces:
            session.untyped.reduced(received)
        arrivals = _arrivals(session, exchange, given, sent, types, received)
        if session.collector is not None and session.collector.count > told:
            arrivals = _refused(session, exchange, session.collector.added_since(told), types, arrivals)
        early = bool(given.get("async_op")) or usual in _MESSAGES
        reading = [tensor for tensor in sent if row.sent != row.received]
        result = started(session, usual, result, arrivals, reading, _ordered(usual, given), returns_early=early)
        if is_tracing() and not isinstance(result, dist.Work):
            log_result(usual, shown, received)
        return result

    return handle


def _of_one_rank(row: RawCollective, given: Mapping[str, object], result: object) -> object:
    """The result of a call that joins no other rank: a functional one has the type of what was handed in."""
    if row.functional and isinstance(result, torch.Tensor) and (tag := tag_of(given[row.sent])) is not None:
        set_tag(result, Tag(tag.current(), tag.origin))
    return result


def _types_sent(
    session: CheckSession, exchange: Exchange, given: Mapping[str, object], sent: Sequence[torch.Tensor]
) -> list[TensorType]:
    """The types of what is handed in. All that can be refused of the call is refused here, before it runs."""
    row, name, axis = exchange.row, exchange.name, exchange.axis
    into = tensors_in(given.get(row.received))
    if session.diverging:
        check_arrival(session, name, sent[0] if sent else None, axis)
    if session.in_flight:
        check_collective(session, name, sent, into, _ordered(name, given))
    if not session.local:
        check_scattered(session, exchange, given)
        if exchange.passed_on:
            note_passed(session, axis, sent)
        note_exchanged_by_hand(session, sent, axis)
    types = [operand_type(session, exchange, tensor) for tensor in sent]
    if name not in _BETWEEN_TWO and any(tensor.is_floating_point() for tensor in sent):
        session.note_exchange(axis, types)
    if row.functional and torch.is_grad_enabled():
        look = check_passed_on if name == "broadcast" else check_operand
        for tensor, type in zip(sent, types, strict=True):
            look(session, name, axis, tensor, type)
    if row.sent != row.received and alias.is_installed():
        check_buffers(session, exchange, into, types)
    check_raw_shapes(session, row, name, axis, sent, given)
    if name == "broadcast" and not row.functional and sent:
        check_sender(session, axis, sent[0], given)
    return types


def _arrivals(
    session: CheckSession,
    exchange: Exchange,
    given: Mapping[str, object],
    sent: Sequence[torch.Tensor],
    types: Sequence[TensorType],
    received: Sequence[torch.Tensor],
) -> list[Receipt]:
    """What the call leaves in each tensor that receives, with what is remembered of where it came from."""
    row = exchange.row
    if exchange.name == "reduce" and sent:
        note_reduced(exchange.axis, sent[0], given)
    order = () if session.local else order_after(session, exchange, sent, types, given)
    arrivals = _receipts(session, exchange, sent, types, received)
    forget_zeros(received)
    if exchange.name in _SENDING_TO_ALL:
        note_made_equal(session, exchange.axis, received)
    if row.name in ("all_gather", "all_to_all") and types:
        note_gathered(session, exchange, sent, received)
    for tensor in received if row.sent != row.received else ():
        set_order(session, tensor, order)
    return arrivals


def _receipts(
    session: CheckSession,
    exchange: Exchange,
    sent: Sequence[torch.Tensor],
    types: Sequence[TensorType],
    received: Sequence[torch.Tensor],
) -> list[Receipt]:
    """What the call leaves in each tensor that receives."""
    row, dims = exchange.row, sent[0].ndim if sent else 0
    bases: Sequence[TensorType | None] = types
    if row.sent != row.received:
        bases = [types[0] if types else None] * len(received)
    site, text = user_site(1), f"{_word(row.gives)} over {exchange.axis!r} since this {exchange.name}"

    def arrived(tensor: torch.Tensor, base: TensorType | None) -> Receipt:
        def of_type(sent: TensorType | None) -> TensorType | None:
            return result_type(session, tensor, sent, exchange, dims)

        return receipt(session, tensor, base, exchange, sent, origin_after(tensor, site, text), of_type)

    return [arrived(tensor, base) for tensor, base in zip(received, bases, strict=False)]


def _refused(
    session: CheckSession,
    exchange: Exchange,
    findings: Sequence[Finding],
    types: Sequence[TensorType],
    arrivals: list[Receipt],
) -> list[Receipt]:
    """What arrives where pieces were refused for the dim that they lie along: nothing is known of it over the axis.

    Otherwise the same mistake would be told again. One buffer of such pieces may still be taken apart.
    """
    if [finding.code for finding in findings] != ["SW212"]:
        return arrivals
    if len(arrivals) == 1:
        origin = Origin(user_site(1), f"gathered over {exchange.axis!r} by this {exchange.name}")
        if session.stacked is None:
            session.stacked = by_tensor()
        session.stacked[arrivals[0].tensor] = StackedRows(exchange, types[0], origin, findings)
    return [_unknown_over(one, exchange.axis) for one in arrivals]


def _unknown_over(receipt: Receipt, axis: MeshAxis) -> Receipt:
    type = receipt.type
    if type is None:
        return receipt
    return replace(receipt, type=type.with_placements(dict.fromkeys(parts_of(axis, type), UNKNOWN)))


def _ordered(name: str, given: Mapping[str, object]) -> object:
    """The group whose collectives come one after the other; None for a message, which comes when it comes."""
    return None if name in _BETWEEN_TWO else given.get("group") or dist.group.WORLD


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


def _word(gives: str) -> str:
    """The placement that a row gives, in a word; of a row that gives none its result is unknown."""
    return PerMeshAxisLocalSpmdType(gives).word if gives else "unknown"


def _no_row(session: CheckSession, name: str, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """A collective without a row: fine on tensors that have no type."""
    typed = [t for value in (*args, *kwargs.values()) for t in tensors_in(value) if type_of(t).axes]
    if typed and session.strict:
        located = LocatedCall(name, [("tensor", typed[0])])
        report(session, located, unknown_collective(name, located.name(0)))
    return func(*args, **kwargs)
