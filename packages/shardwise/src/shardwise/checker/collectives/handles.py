"""What starts a collective and returns before it is done: handles, and calls that are gathered into one."""

from __future__ import annotations

import contextlib
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

from shardwise.diagnostics.source import is_internal, user_site
from shardwise.interop.running.silence import codes_of, is_running
from shardwise.interop.torch_compat import fake_work

from ..operators.in_flight import Flight, land, start
from ..state.session import CheckSession
from .raw_arrivals import Receipt

FindSession = Callable[[], CheckSession | None]
_TELLING_OTHERS = codes_of(Join.notify_join_context)
"""Tells the ranks whose inputs have run out that this one's have not."""
_MACHINERY = tuple(
    f"{dist.__path__[0]}/{name}.py" for name in ("distributed_c10d", "c10d_logger", "_functional_collectives")
)


class Handle:
    """What a collective with ``async_op=True`` gives: its tensors have no known type until it is waited for."""

    def __init__(
        self, session: CheckSession, work: dist.Work, arrivals: Sequence[Receipt], flights: Sequence[Flight] = ()
    ) -> None:
        self._session = session
        self._work = work
        self._arrivals = arrivals
        self._flights = flights
        for arrival in arrivals:
            arrival.forget()
        for flight in flights:
            flight.handle = weakref.ref(self)
            start(session, flight)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # programs ask isinstance(handle, dist.Work)
        return self._work.__class__

    def __getattr__(self, name: str) -> object:
        return getattr(self._work, name)

    def _is_done(self) -> None:
        for flight in self._flights:
            land(self._session, flight)
        arrivals, self._arrivals, self._flights = self._arrivals, (), ()
        for arrival in arrivals:
            arrival.take_place()

    def wait(self, *args: timedelta, **kwargs: timedelta) -> object:
        done = self._work.wait(*args, **kwargs)
        self._is_done()
        return done

    synchronize = wait

    def is_completed(self) -> bool:
        """Whoever has seen that it is done need not wait; what the fake backend starts is done."""
        done = bool(self._work.is_completed()) or isinstance(self._work, fake_work())
        if done:
            self._is_done()
        return done

    def get_future(self) -> object:
        """Whoever has the future waits with that."""
        future = self._work.get_future()
        self._is_done()
        return future


class Gathering:
    """The calls inside a coalescing manager: they start together when it ends."""

    def __init__(self) -> None:
        self.arrivals: list[Receipt] = []
        self.flights: list[Flight] = []


def started(
    session: CheckSession,
    name: str,
    work: object,
    arrivals: Sequence[Receipt],
    sent: Sequence[torch.Tensor],
    group: object,
    *,
    returns_early: bool,
) -> object:
    """What a collective that has been issued gives to the program; ``returns_early``: it may not be done yet."""
    received = [arrival.tensor for arrival in arrivals]
    if session.gathering is not None:
        session.gathering.arrivals += arrivals
        session.gathering.flights.append(Flight(name, user_site(2), received, sent, group))
        return work
    if returns_early and isinstance(work, dist.Work):
        own = is_the_programs()
        if not own and is_running(_TELLING_OTHERS):
            return work  # DDP hands it to C++, which takes no stand-in
        flights = [Flight(name, user_site(2), received, sent, group)] if own else []
        return Handle(session, work, arrivals, flights)
    for arrival in arrivals:
        arrival.take_place()
    return work


def is_the_programs() -> bool:
    """True if code of the program has made the call, and not torch, which knows when it waits."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_internal(frame.f_code):
            return True
        if "/torch/" in file and not file.endswith(_OVERRIDES) and file not in _MACHINERY:
            return False
        frame = frame.f_back
    return False


_OVERRIDES = ("torch/overrides.py", "torch/_ops.py", "torch/utils/_contextlib.py", "torch/_jit_internal.py")


def wrap_coalescing(find: FindSession, plain: Any) -> Callable[..., object]:
    """``torch.distributed._coalescing_manager``, whose calls are one: done at its end, or waited for with it."""
    signature = inspect.signature(plain)

    @contextlib.contextmanager
    def coalescing(*args: object, **kwargs: object) -> Iterator[object]:
        session = find()
        if session is None:
            with plain(*args, **kwargs) as manager:
                yield manager
            return
        before, session.gathering = session.gathering, Gathering()
        gathered = session.gathering
        try:
            with plain(*args, **kwargs) as manager:
                yield manager
        finally:
            session.gathering = before
        if signature.bind(*args, **kwargs).arguments.get("async_ops", False) and manager.works:
            flights = gathered.flights if is_the_programs() else []
            manager.works[:] = [Handle(session, manager.works[0], gathered.arrivals, flights), *manager.works[1:]]
            return
        for arrival in gathered.arrivals:
            arrival.take_place()

    return coalescing
