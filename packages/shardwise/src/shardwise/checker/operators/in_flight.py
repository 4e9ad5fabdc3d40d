"""Collectives and messages that were started and not waited for: what may not happen to their tensors meanwhile.

What is being received has no value yet: nobody may use it. What is being sent may be read, and nobody may write it.
Making views and asking for shapes touches no element. Until something is in flight, a call pays one look at a dict.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.fix import Fix
from shardwise.diagnostics.source import Site
from shardwise.diagnostics.source_location import Hop, Operand
from shardwise.interop.calls.located_call import LocatedCall, describe_value, report
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.fixes.waits import done_at_once, wait_before
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.dtensors import is_dtensor, local_part
from shardwise.interop.tensors.memory_pieces import region_of
from shardwise.interop.torch_compat import HigherOrderOperator, storage_key
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind

from ..call.arguments import Op
from ..state.session import CheckSession

_TOUCHES_NOTHING = frozenset({"record_stream", "requires_grad_", "register_hook", "share_memory_", "as_subclass"})


@dataclass(eq=False, slots=True)
class Flight:
    """One collective or message between its start and ``wait``.

    ``received``, ``sent``  the tensors that it writes and reads.
    ``group``   of a collective: later ones of the same group come after it. None for messages.
    ``handle``  what the program can wait with, while that is alive.
    """

    name: str
    site: Site | None
    received: Sequence[torch.Tensor]
    sent: Sequence[torch.Tensor]
    group: object = None
    handle: weakref.ref[Any] | None = None
    told: bool = False
    keys: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        self.keys = tuple({storage_key(tensor) for tensor in (*self.received, *self.sent)})


def start(session: CheckSession, flight: Flight) -> None:
    """``flight`` is under way from here on."""
    for key in flight.keys:
        session.in_flight.setdefault(key, []).append(flight)


def land(session: CheckSession, flight: Flight) -> None:
    """``flight`` has been waited for, or told of."""
    for key in flight.keys:
        left = [one for one in session.in_flight.get(key, ()) if one is not flight]
        if left:
            session.in_flight[key] = left
        else:
            session.in_flight.pop(key, None)


def land_all(session: CheckSession, group: object = None) -> None:
    """The device has been waited for as a whole, or for the collectives of one group."""
    for flight in _flights(session):
        if group is None or flight.group is group:
            land(session, flight)


def _flights(session: CheckSession) -> list[Flight]:
    return list(dict.fromkeys(flight for flights in session.in_flight.values() for flight in flights))


class Touch:
    """Which arguments an operator reads, and whether it writes its first one; decided once for each."""

    __slots__ = ("op", "touches", "writes")

    def __init__(self, func: object) -> None:
        self.op: Op | None = None
        self.writes = False
        collective = getattr(func, "__module__", "") == dist.all_reduce.__module__  # says itself what it touches
        self.touches = not (collective or isinstance(func, HigherOrderOperator))
        if not self.touches:
            return
        name = op_name(func)
        rule = name.find(lookup)
        if name.prop is not None or name.shown in _TOUCHES_NOTHING:
            self.touches = False
        elif rule is not None:
            self.touches = rule.kind is not Kind.METADATA and not (rule.view and not name.in_place)
            self.op = Op(name, rule)
            self.writes = name.in_place


_touches: dict[Any, Touch] = {}


def check_call(session: CheckSession, func: object, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Report what a call of an operator does to tensors that are in flight. Errors: SW220, SW221."""
    touch = _touches.get(func)
    if touch is None:
        touch = _touches.setdefault(func, Touch(func))
    if not touch.touches:
        return
    name = op_name(func).shown
    for position, value in enumerate(args):
        if touch.op is not None and touch.op.param_at(position) in touch.op.templates and not touch.writes:
            continue
        for tensor in tensors_in(value):
            check_tensor(session, name, tensor, writes=touch.writes and position == 0)
    for key, value in kwargs.items():
        for tensor in tensors_in(value):
            check_tensor(session, name, tensor, writes=key == "out")


def check_collective(
    session: CheckSession,
    name: str,
    sent: Iterable[torch.Tensor],
    received: Iterable[torch.Tensor],
    group: object,
) -> None:
    """The same of a collective or message; those of one group come after each other."""
    for tensor in received:
        check_tensor(session, name, tensor, writes=True, group=group)
    for tensor in sent:
        check_tensor(session, name, tensor, writes=False, group=group)


def check_tensor(
    session: CheckSession,
    name: str,
    tensor: torch.Tensor,
    *,
    writes: bool,
    group: object = None,
    label: Callable[[], str] | None = None,
) -> None:
    """Report that ``name`` reads or writes ``tensor``, if that is in flight; ``label``: tells what to call it."""
    if is_dtensor(tensor):
        tensor = local_part(tensor)
    for flight in list(session.in_flight.get(storage_key(tensor), ())):
        if group is not None and flight.group is group:
            continue
        received = _overlaps(tensor, flight.received)
        if flight.told or not (received or (writes and _overlaps(tensor, flight.sent))):
            continue
        flight.told = True
        land(session, flight)
        located = LocatedCall(name, [("tensor", tensor)])
        shown = located.name(0) if label is None else label()
        said = _written(name, shown, flight) if writes else _used(name, shown, flight)
        said = replace(said, fixes=_waits(flight, located, said.help[0]))
        started = () if flight.site is None else (Hop(f"given to {flight.name} here", flight.site.location()),)
        operand = Operand(shown, describe_value(tensor), located.places[0], started)
        report(session, located, said, operands=(operand,))


def tell_never_waited(session: CheckSession, *, ended: bool) -> None:
    """Report what nobody has waited for, or, before the program has ``ended``, nobody can. Errors: SW222."""
    for flight in _flights(session):
        reachable = flight.handle is not None and flight.handle() is not None
        land(session, flight)
        if flight.told or (reachable and not ended):
            continue
        location = None if flight.site is None else flight.site.location()
        said = _never_waited(flight)
        fixes = done_at_once(flight.site, flight.name, (said.help[0], said.help[-1]))
        finding = replace(said, fixes=fixes).at(location, flight.name)
        session.report(SpmdTypeError(finding.message, code=finding.code, help=finding.help, finding=finding))


def _overlaps(tensor: torch.Tensor, others: Iterable[torch.Tensor]) -> bool:
    own, key = region_of(tensor), storage_key(tensor)
    for other in others:
        if other is tensor:
            return True
        region = region_of(other)
        if own is None or region is None or storage_key(other) != key:
            continue
        if any(a < d and c < b for a, b in own.ranges for c, d in region.ranges):
            return True
    return False


def _waits(flight: Flight, located: LocatedCall, help: str) -> tuple[Fix, ...]:
    handle = None if flight.handle is None else flight.handle()
    at_once = done_at_once(flight.site, flight.name, (help, f"{flight.name} without async_op=True"))
    return (*wait_before(located.location, handle, help), *at_once)


def _used(op: str, name: str, flight: Flight) -> Diagnosis:
    return Diagnosis(
        "SW220",
        f"{op} uses {name} before anybody has waited for the {flight.name} that fills it",
        (f"until then {name} holds what was in it, what arrives, or some of both, and on each rank another part",),
        (f"wait() on what {flight.name} has returned, before {op}",),
    )


def _written(op: str, name: str, flight: Flight) -> Diagnosis:
    return Diagnosis(
        "SW221",
        f"{op} writes {name} while the {flight.name} that it was given to may still be running",
        (f"the other ranks get what was in {name} before, what is written, or some of both",),
        (f"wait() on what {flight.name} has returned, before {op}", f"{op} on a copy of {name}"),
    )


def _never_waited(flight: Flight) -> Diagnosis:
    facts = ("without wait() nothing says when its tensors may be used, written or freed, and no error of it is seen",)
    help_lines: tuple[str, ...] = (f"handle = {flight.name}(...), and handle.wait() before its tensors are needed",)
    if flight.group is not None:
        help_lines += ("without async_op=True it is done when it returns",)
    return Diagnosis("SW222", f"nobody waits for this {flight.name}", facts, help_lines)
