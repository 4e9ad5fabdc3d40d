"""Rows that an exchange has moved: the shards hold pieces of a tensor, and its rows stand in another order.

``all_to_all`` from S(0) to S(0) leaves every rank with as many rows as before, and with others. By itself that is a
shard of a permuted tensor, which may be worked on row by row, be summed, and be sent back; nothing of the original
order may meet it. The order is remembered beside the type, since the placement is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import Tag, set_tag, type_of
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground

from ..state.session import CheckSession

Sizes = tuple[int, ...] | None
Step = tuple[MeshAxis, Sizes, Sizes]
"""One exchange: over which axis, with how many rows received from and sent to every rank (None: evenly)."""
Order = tuple[Step, ...]
"""The exchanges that have not been undone, the last one last; empty for rows in their own places."""

_orders: Any = WeakIdKeyDictionary()


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


def exchanged(order: Order, step: Step) -> Order:
    """The order after one more exchange, which may undo the last one."""
    axis, received, sent = step
    return order[:-1] if order and order[-1] == (axis, sent, received) else (*order, step)


def following(
    session: CheckSession, name: str, run: Callable[[], object], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """``run()`` of an operator, which hands the order of its operands on. Errors: SW223 where two orders meet."""
    tensors = tensors_in((*args, *kwargs.values()))
    orders = {id(x): order_of(x) for x in tensors}
    found = next((order for order in orders.values() if order), None)
    if found is None:
        return run()
    axis = found[-1][0]
    pieces = [x for x in tensors if _is_piece(x, axis)]
    other = next((at for at, x in enumerate(pieces) if orders[id(x)] != found), None)
    if other is not None:
        located = LocatedCall(name, [(f"args[{at}]", x) for at, x in enumerate(pieces)])
        moved = next(at for at, x in enumerate(pieces) if orders[id(x)])
        report(session, located, _orders_meet(name, located.name(moved), located.name(other), axis), axis)
    result = run()
    for made in tensors_in(result):
        if other is not None:
            set_tag(made, Tag(UNKNOWN_TYPE))
        elif _is_piece(made, axis):
            set_order(session, made, found)
    return result


def check_gathered(session: CheckSession, name: str, axis: MeshAxis, x: torch.Tensor) -> bool:
    """Report pieces that are put together, or moved to another dim, in the order of an exchange. Errors: SW223."""
    order = order_of(x)
    if not order or order[-1][0].isorthogonal(axis):
        return False
    located = LocatedCall(name, [("x", x)])
    label = located.name(0)
    said = Diagnosis(
        "SW223",
        f"{name} over {axis_text(axis)} puts the rows of {label} together in the order of an exchange",
        (f"all_to_all has moved the rows of {label} between the ranks, and nothing has moved them back",),
        (f"all_to_all of {label} over {axis_argument(axis)} once more first, which brings every row back",),
    )
    report(session, located, said, axis)
    return True


def _is_piece(x: torch.Tensor, axis: MeshAxis) -> bool:
    type = type_of(x)
    if type.ground is not Ground.ABSENT:
        return False
    return any(partition_spec_get_shard(type.spec, one) is not None for one in parts_of(axis, type))


def _orders_meet(name: str, moved: str, other: str, axis: MeshAxis) -> Diagnosis:
    return Diagnosis(
        "SW223",
        f"{name} combines rows that all_to_all has moved over {axis_text(axis)} with rows that are in another order",
        (f"each row of {moved} meets a row of {other} that is not its own",),
        (f"all_to_all of {moved} over {axis_argument(axis)} once more first, which brings every row back",),
    )
