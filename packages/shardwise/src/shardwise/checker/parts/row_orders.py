"""Rows that stand in another order than on one device: an exchange has moved them, or dims were merged.

``all_to_all`` from S(0) to S(0) leaves every rank with as many rows as before, and with others; merged behind another
dim, the shards of a dim interleave. By itself that is a shard of a permuted tensor, which may be worked on row by row,
be summed, and be brought back; nothing of the original order may meet it. The order is remembered beside the type,
since the placement is the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.reordered import note_reordered
from shardwise.interop.tensors.tagging import Tag, set_tag, type_of
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.reshaped_dims import DimMerge
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground

from ..state.session import CheckSession

Sizes = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class RowExchange:
    """An exchange over ``axis``, with how many rows ``received`` from and ``sent`` to every rank; None: evenly."""

    axis: MeshAxis
    received: Sizes
    sent: Sizes

    @property
    def undone_by(self) -> RowExchange:
        return RowExchange(self.axis, self.sent, self.received)

    def way_back(self, label: str) -> str:
        return f"all_to_all of {label} over {axis_argument(self.axis)} once more first, which brings every row back"

    @property
    def done(self) -> str:
        """What was done to the rows."""
        return f"all_to_all has moved over {axis_text(self.axis)}"


@dataclass(frozen=True, slots=True)
class RowMerge:
    """A merge of dims, of which ``axis`` shards one that is not the outermost."""

    axis: MeshAxis
    merge: DimMerge

    def way_back(self, label: str) -> str:
        sizes = ", ".join(map(str, self.merge.sizes))
        return f"split the rows of {label} into [{sizes}] again first, which brings every row back"

    @property
    def done(self) -> str:
        """What was done to the rows."""
        return f"were merged from dims of which {axis_text(self.axis)} cuts an inner one"


Order = tuple[RowExchange | RowMerge, ...]
"""What has been done to rows and not been undone, the last one last; empty for rows in their own places."""

_orders: Any = by_tensor()


def order_of(x: torch.Tensor) -> Order:
    """The exchanges that the rows of ``x`` have gone through."""
    with no_torch_function():
        order: Order = _orders.get(x, ())
    return order


def set_order(session: CheckSession, x: torch.Tensor, order: Order) -> None:
    """Remember the order of the rows of ``x``."""
    if not order and not session.rows_moved:
        return
    session.rows_moved = True
    with no_torch_function():
        if order:
            _orders[x] = order
        else:
            _orders.pop(x, None)
    note_reordered(x, [one.axis for one in order if isinstance(one, RowMerge)])


def exchanged(order: Order, step: RowExchange) -> Order:
    """The order after one more exchange, which may undo the last one."""
    return order[:-1] if order and order[-1] == step.undone_by else (*order, step)


def following(
    session: CheckSession, name: str, run: Callable[[], object], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """``run()`` of an operator, which hands the order of its operands on. Errors: SW223 where two orders meet."""
    tensors = tensors_in((*args, *kwargs.values()))
    orders = {id(x): order_of(x) for x in tensors}
    found = next((order for order in orders.values() if order), None)
    if found is None:
        return run()
    axis = found[-1].axis
    pieces = [x for x in tensors if _is_piece(x, axis)]
    other = next((at for at, x in enumerate(pieces) if orders[id(x)] != found), None)
    if other is not None:
        located = LocatedCall(name, [(f"args[{at}]", x) for at, x in enumerate(pieces)])
        moved = next(at for at, x in enumerate(pieces) if orders[id(x)])
        report(session, located, _orders_meet(name, located.name(moved), located.name(other), found), axis)
    result = run()
    for made in tensors_in(result):
        if other is not None:
            set_tag(made, Tag(UNKNOWN_TYPE))
        elif _is_piece(made, axis):
            set_order(session, made, found)
    return result


def keeping_order(name: str, handler: Callable[..., object]) -> Callable[..., object]:
    """``handler``, whose results have the order of its operands; those of ordinary operators hand it on themselves."""

    def handle(session: CheckSession, func: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        if session.local or not session.rows_moved:
            return handler(session, func, args, kwargs)
        return following(session, name, functools.partial(handler, session, func, args, kwargs), args, kwargs)

    return handle


def check_gathered(session: CheckSession, name: str, axis: MeshAxis, x: torch.Tensor) -> bool:
    """Report pieces that are put together, or moved to another dim, in the order of an exchange. Errors: SW223."""
    order = order_of(x)
    if not order or order[-1].axis.isorthogonal(axis):
        return False
    located = LocatedCall(name, [("x", x)])
    label = located.name(0)
    said = Diagnosis(
        "SW223",
        f"{name} over {axis_text(axis)} puts the rows of {label} together, which {order[-1].done}",
        (f"on one device the rows of {label} stand in another order",),
        (order[-1].way_back(label),),
    )
    report(session, located, said, axis)
    return True


def _is_piece(x: torch.Tensor, axis: MeshAxis) -> bool:
    type = type_of(x)
    if type.ground is not Ground.ABSENT:
        return False
    return any(partition_spec_get_shard(type.spec, one) is not None for one in parts_of(axis, type))


def _orders_meet(name: str, moved: str, other: str, order: Order) -> Diagnosis:
    return Diagnosis(
        "SW223",
        f"{name} combines rows that {order[-1].done} with rows that are in another order",
        (f"each row of {moved} meets a row of {other} that is not its own",),
        (order[-1].way_back(moved),),
    )
