"""A function run as every rank of a group, on one thread: each rank runs until it needs what another has not sent yet.

A rank that has to wait is given up, and run again from the start when the others have come further; what it is sent is
then known. So the function must be deterministic, and nothing is kept of a run that was given up. No thread, no process
group and no message of a real job is used: calls of ``torch.distributed`` are answered here.

    ranks 0, 1 of all_reduce: run 0 (waits), run 1 (both have come: goes on to its end), run 0 (goes on to its end)
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from shardwise.diagnostics.source import Site, user_site
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import (
    FUNCTIONAL_NAMESPACES,
    WAITS,
    OpOverload,
    OpOverloadPacket,
    no_torch_function,
    qualified_name,
)
from shardwise.mesh.axis import MeshAxis

from .collectives import CollectiveCall, NotSimulated, call_of, outcome

Result = TypeVar("Result")
LIMIT = 16
"""More ranks than these are not simulated."""
_MESSAGES = {"send", "isend", "recv", "irecv"}
Meeting = tuple[tuple[int, ...], int]
"""The ranks of a group, and which of its collectives."""


class ReplayStuck(Exception):
    """Ranks wait for each other for ever."""


class _Waiting(BaseException):
    """Ends the run of a rank that needs what is not there yet. Not an Exception: programs catch those."""


class SimulatedHandle:
    """What a collective with ``async_op=True`` gives: the tensors are there after ``wait``."""

    def __init__(self, finish: Callable[[], object], note: Callable[[], None]) -> None:
        self._finish: Callable[[], object] | None = finish
        self._note = note  # told that it is waited for

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # programs ask isinstance(handle, dist.Work)
        return dist.Work

    def wait(self, timeout: object = None) -> bool:
        if self._finish is not None:
            self._finish()
            self._finish = None
        self._note()
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self.wait()


@dataclass(frozen=True)
class IssuedCollective:
    """A collective that a rank has issued: its name, the axis of its group, where, a handle that nobody waited for."""

    name: str
    axis: MeshAxis
    site: Site | None
    handle: weakref.ref[SimulatedHandle] | None = None

    @property
    def is_unfinished(self) -> bool:
        """Nobody has waited for it."""
        return self.handle is not None

    @property
    def is_dropped(self) -> bool:
        """Its handle has not been waited for, and nobody has it any more."""
        return self.handle is not None and self.handle() is None


@dataclass
class ReplayedRank(Generic[Result]):
    """What a rank came to: the function's result and the collectives that it issued, in order."""

    result: Result
    issued: list[IssuedCollective] = field(default_factory=list)


class Replay(Generic[Result]):
    """``function(rank)`` on ``ranks``, and on all that these talk to.

    ``rank``   the one that is running now.
    ``first``  this process's own rank; what is run if no others are named.
    ``alone``  every group is of one rank.
    ``codes``  of the functions whose lines are named as the places of collectives.
    """

    def __init__(
        self,
        function: Callable[[int], Result],
        first: int,
        ranks: Sequence[int] = (),
        codes: Collection[CodeType] = (),
        *,
        alone: bool = False,
    ) -> None:
        self.function = function
        self.codes = codes
        self.alone = alone
        self.first = first
        self.rank = first
        self.ranks = list(ranks) or [first]
        self._inputs: dict[Meeting, dict[int, list[torch.Tensor]]] = defaultdict(dict)
        self._given: dict[Meeting, dict[int, Mapping[str, Any]]] = defaultdict(dict)
        self._names: dict[Meeting, str] = {}
        self._sent: dict[tuple[int, int, int], torch.Tensor] = {}
        self._counts: dict[object, int] = {}
        self._issued: list[IssuedCollective] = []
        self._axes: set[MeshAxis] = set()
        self._news = False

    def results(self) -> dict[int, ReplayedRank[Result]]:
        """By rank. Errors: NotSimulated, ReplayStuck, and what the function raises."""
        done: dict[int, ReplayedRank[Result]] = {}
        while len(done) < len(self.ranks):
            self._news = False
            before = len(done)
            for rank in list(self.ranks):
                if rank in done:
                    continue
                self.rank, self._counts, self._issued = rank, defaultdict(int), []
                try:
                    with _Calls(self):
                        done[rank] = ReplayedRank(self.function(rank), self._issued)
                except _Waiting:
                    continue
            if len(done) == before and not self._news:
                raise ReplayStuck(f"ranks {[rank for rank in self.ranks if rank not in done]} wait for others")
        return done

    @property
    def issued_now(self) -> int:
        """How many collectives the running rank has issued so far."""
        return len(self._issued)

    def ranks_of(self, group: Any) -> tuple[int, ...]:
        """The ranks of ``group`` as the running rank sees it: those that lie to it as the real ones to ours."""
        if self.alone:
            return (self.rank,)
        axis = axis_of(group)
        if axis not in self._axes:
            real = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
            if tuple(sorted(real)) != _fiber(axis, self.first):
                raise NotSimulated(f"a group whose ranks {real} are no fiber of a mesh")
            self._axes.add(axis)
        return _fiber(axis, self.rank)

    def collective(self, call: CollectiveCall) -> object:
        """Answer a call of the running rank."""
        ranks = self.ranks_of(call.group)
        if call.name in _MESSAGES:
            return self._message(call)
        self._invite(ranks)
        self._counts[ranks] += 1
        meeting = (ranks, self._counts[ranks])
        if self._names.setdefault(meeting, call.name) != call.name:
            raise ReplayStuck(f"{call.name} meets {self._names[meeting]}")
        if self.rank not in self._inputs[meeting]:
            self._inputs[meeting][self.rank] = [x.detach().clone() for x in call.sent]
            self._given[meeting][self.rank] = call.given
            self._news = True
        number = len(self._issued)
        self._issued.append(IssuedCollective(call.name, axis_of(call.group), self._site()))
        if call.row.functional:
            (made,) = self._answer(call, meeting)
            return made
        if call.is_async:
            return self._handle(lambda: self._receive(call, meeting), number)
        self._receive(call, meeting)
        return None

    def _handle(self, finish: Callable[[], object], number: int) -> SimulatedHandle:
        issued = self._issued
        plain = issued[number]

        def waited() -> None:
            issued[number] = plain

        handle = SimulatedHandle(finish, waited)
        issued[number] = replace(plain, handle=weakref.ref(handle))
        return handle

    def _site(self) -> Site | None:
        """The line of forward or backward that is running, rather than that of a helper which it calls."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code in self.codes:
                return Site(frame.f_code, frame.f_lasti)
            frame = frame.f_back
        return user_site(1)

    def _invite(self, ranks: tuple[int, ...]) -> None:
        for rank in ranks:
            if rank not in self.ranks:
                self.ranks.append(rank)
                self._news = True
        if len(self.ranks) > LIMIT:
            raise NotSimulated(f"more than {LIMIT} ranks")

    def _answer(self, call: CollectiveCall, meeting: Meeting) -> Any:
        ranks = meeting[0]
        come = self._inputs[meeting]
        if len(come) < len(ranks):
            raise _Waiting
        given = [self._given[meeting][rank] for rank in ranks]
        return outcome(call, ranks, ranks.index(self.rank), [come[rank] for rank in ranks], given)

    def _receive(self, call: CollectiveCall, meeting: Meeting) -> None:
        for buffer, value in zip(call.received, self._answer(call, meeting), strict=False):
            _fill(buffer, value)

    def _message(self, call: CollectiveCall) -> object:
        partner = call.peer
        if partner is None:
            raise NotSimulated("a message from anybody")
        number = len(self._issued)
        self._issued.append(IssuedCollective(call.name, axis_of(call.group), self._site()))
        self._invite((partner,))
        sends = "send" in call.name
        ends = (self.rank, partner) if sends else (partner, self.rank)
        self._counts[call.name[-4:], ends] += 1
        key = (*ends, self._counts[call.name[-4:], ends])
        if sends:
            if key not in self._sent:
                self._sent[key] = call.sent[0].detach().clone()
                self._news = True
            return self._handle(lambda: None, number) if call.name == "isend" else None
        (buffer,) = call.received

        def finish() -> None:
            if key not in self._sent:
                raise _Waiting
            _fill(buffer, self._sent[key])

        if call.name == "irecv":
            return self._handle(finish, number)
        finish()
        return partner


def _fiber(axis: MeshAxis, rank: int) -> tuple[int, ...]:
    """The ranks along ``axis`` through ``rank``: those that differ from it in the digits of the axis alone."""
    base = rank - sum((rank // stride) % size * stride for size, stride in axis.layout.atoms)
    return tuple(base + offset for offset in axis.layout.ranks())


def _fill(buffer: torch.Tensor, value: torch.Tensor) -> None:
    if buffer.numel() != value.numel():
        raise NotSimulated(f"{value.numel()} elements into a buffer of {buffer.numel()}")
    with torch.no_grad():
        buffer.data.copy_(value.reshape(buffer.shape))


def axis_of(group: object) -> MeshAxis:
    """The axis of a process group. Errors: NotSimulated if this rank is not in it, or its ranks are no axis."""
    if group is None:
        group = dist.group.WORLD
    if group is None or group is dist.GroupMember.NON_GROUP_MEMBER:
        raise NotSimulated("a group without this rank")
    try:
        return MeshAxis.of(group)
    except Exception as error:
        raise NotSimulated(str(error)) from None


class _Calls(TorchFunctionMode):
    """Shows the calls of ``torch.distributed`` to a replay, which answers them."""

    def __init__(self, replay: Replay[Any]) -> None:
        super().__init__()
        self.replay = replay

    def __torch_function__(
        self,
        func: TorchFunction,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        found = collective_named(func)
        if found is None:
            return func(*args, **kwargs)
        name, functional = found
        if name in WAITS:
            return args[0]
        with no_torch_function():
            return self.replay.collective(call_of(name, args, kwargs, functional))


def collective_named(func: Callable[..., object]) -> tuple[str, bool] | None:
    """The name of a collective, and whether it is a functional one; None for anything else."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        namespace, _, name = qualified_name(func).partition("::")
        name = name.split(".")[0]
        return (name, True) if namespace in FUNCTIONAL_NAMESPACES else None
    return (func.__name__, False) if getattr(func, "__module__", "") == dist.all_reduce.__module__ else None


class RecordedCollectives(TorchFunctionMode):
    """Notes the collectives that a call issues where it runs.

    ``foreign``  an operator ran of which nobody knows whether it communicates.
    """

    def __init__(self) -> None:
        super().__init__()
        self.issued: list[IssuedCollective] = []
        self.foreign = False

    def __torch_function__(self, func: Any, types: object, args: tuple[object, ...] = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        found = collective_named(func)
        if found is not None and found[0] not in WAITS:
            try:
                call = call_of(found[0], args, kwargs, found[1])
                self.issued.append(IssuedCollective(found[0], axis_of(call.group), user_site()))
            except NotSimulated:
                self.foreign = True
        elif isinstance(func, (OpOverload, OpOverloadPacket)) and not qualified_name(func).startswith(
            ("aten::", "prim")
        ):
            self.foreign = True
        return func(*args, **kwargs)
