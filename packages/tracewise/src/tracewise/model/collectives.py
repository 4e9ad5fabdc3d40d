"""Which collectives each rank issued over each group, in columns: a call is a number of a kind, a site and times.

Columns, because a job of 4,096 ranks with 2,000 calls each has eight million of them; equal schedules are equal bytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracewise.model.entities import Frame
from tracewise.read.flight import FlightDump
from tracewise.read.health import Health

SCHEDULED, STARTED, COMPLETED = 0, 1, 2
STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
WORLD_NAME = "default_pg"
MAX_RANKS = 1 << 20
# Names of one operation in the recorder, the profiler and the functional operators.
OPERATIONS = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "_all_gather_base": "all_gather", "_allgather_base": "all_gather", "allgather": "all_gather",
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "allgather_coalesced": "all_gather", "all_gather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_all", "_broadcast_oop": "broadcast", "_reduce_oop": "reduce",
    "all_reduce_barrier": "barrier", "monitored_barrier": "barrier",
}  # fmt: skip
DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


class Kind(NamedTuple):
    """What a call is, apart from where and when: two ranks' calls of one kind fit."""

    op: str
    dtypes: tuple[str, ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    out_sizes: tuple[tuple[int, ...], ...] = ()

    @property
    def elements(self) -> int:
        return sum(math.prod(size) for size in self.sizes)

    @property
    def out_elements(self) -> int:
        return sum(math.prod(size) for size in self.out_sizes)

    def __str__(self) -> str:
        shown = ", ".join(
            f"{dtype}{list(size)}" for dtype, size in zip([*self.dtypes, *[""] * 9], self.sizes[:9], strict=False)
        )
        return f"{self.op} of {shown}" if shown else self.op


@dataclass(slots=True)
class Schedule:
    """One rank's calls over one group, in order; a time of 0 is not known."""

    rank: int
    group: str
    seqs: array[int] = field(default_factory=lambda: array("q"))
    kinds: array[int] = field(default_factory=lambda: array("I"))
    sites: array[int] = field(default_factory=lambda: array("I"))
    created: array[int] = field(default_factory=lambda: array("q"))
    ended: array[int] = field(default_factory=lambda: array("q"))
    states: bytearray = field(default_factory=bytearray)
    active: bytearray = field(default_factory=bytearray)
    order: array[int] = field(default_factory=lambda: array("q"))
    timeout_ms: int = 0

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, seq: int, kind: int, site: int, created: int = 0, ended: int = 0, order: int = 0) -> None:
        """A call at the end."""
        self.seqs.append(seq)
        self.kinds.append(kind)
        self.sites.append(site)
        self.created.append(created)
        self.ended.append(ended)
        self.states.append(SCHEDULED)
        self.active.append(0)
        self.order.append(order)


@dataclass(slots=True)
class Group:
    """A process group. ``is_certain``: a dump lists its members, so one without entries is known to be missing."""

    name: str
    description: str = ""
    members: set[int] = field(default_factory=set)
    is_certain: bool = False

    def __str__(self) -> str:
        known = self.description not in ("", "undefined", self.name)
        return f"group {self.name} ({self.description})" if known else f"group {self.name}"


class Message(NamedTuple):
    """A send or a receive: the n-th between two ranks of a group."""

    group: str
    source: int
    target: int
    is_send: bool
    elements: int
    site: int


@dataclass
class Recording:
    """The collectives of a job. ``source`` is flight or profiler; ``ranks`` are those that left a file."""

    source: str
    ranks: set[int] = field(default_factory=set)
    world_size: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    schedules: dict[str, dict[int, Schedule]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    sites: list[Frame | None] = field(default_factory=lambda: [None])
    health: Health = field(default_factory=Health)
    _kind_numbers: dict[Kind, int] = field(default_factory=dict)
    _site_numbers: dict[Frame | None, int] = field(default_factory=lambda: {None: 0})

    def kind(self, kind: Kind) -> int:
        """The number of a kind."""
        number = self._kind_numbers.get(kind)
        if number is None:
            number = self._kind_numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        return number

    def site(self, frame: Frame | None) -> int:
        """The number of a place in the user's code."""
        number = self._site_numbers.get(frame)
        if number is None:
            number = self._site_numbers[frame] = len(self.sites)
            self.sites.append(frame)
        return number

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(name))

    def schedule(self, group: str, rank: int) -> Schedule:
        """A rank's calls over a group; a new one for the first."""
        of_group = self.schedules.setdefault(group, {})
        if rank not in of_group:
            of_group[rank] = Schedule(rank, group)
            self.group(group).members.add(rank)
        return of_group[rank]

    def calls_of(self, rank: int) -> list[tuple[Schedule, int]]:
        """All calls of a rank over all groups, in the order of the program: schedule and position in it."""
        found = [
            (of_group[rank], position)
            for of_group in self.schedules.values()
            if rank in of_group
            for position in range(len(of_group[rank]))
        ]
        return sorted(found, key=lambda call: call[0].order[call[1]])


def operation(name: str) -> str:
    """``all_gather`` for ``nccl:_all_gather_base``."""
    plain = name.rpartition(":")[2].split(" ")[0].strip()
    return OPERATIONS.get(plain, plain)


def add_dump(recording: Recording, dump: FlightDump) -> None:
    """Takes in one rank's flight-recorder dump. What cannot be understood is noted and left out."""
    recording.ranks.add(dump.rank)
    names = set()
    entries = [entry for entry in dump.entries if isinstance(entry, dict)]
    for _ in range(len(dump.entries) - len(entries)):
        recording.health.note_name("bad_field", "flight.entries", dump.name, 0)
    if all(type(entry.get("record_id")) is int for entry in entries):
        entries.sort(key=lambda entry: entry["record_id"])
    for order, entry in enumerate(entries):
        group = entry.get("process_group")
        name, description = (group[0], group[1]) if isinstance(group, list | tuple) and len(group) == 2 else ("", "")
        if not isinstance(name, str) or not isinstance(entry.get("profiling_name"), str):
            recording.health.note_name("bad_field", "flight.process_group", dump.name, order)
            continue
        if entry.get("is_p2p") is True:
            _add_message(recording, dump, name, entry)
        elif _add_call(recording, dump, name, entry, order):
            names.add(name)
            recording.group(name).description = description if isinstance(description, str) else ""
    _add_members(recording, dump, names)


def _add_call(recording: Recording, dump: FlightDump, group: str, entry: dict[str, Any], order: int) -> bool:
    seq = entry.get("collective_seq_id")
    if type(seq) is not int or not 0 <= seq < 1 << 62:
        recording.health.note_name("bad_field", "flight.collective_seq_id", dump.name, order)
        return False
    kind = Kind(
        operation(entry["profiling_name"]),
        _names(entry.get("input_dtypes")),
        _sizes(entry.get("input_sizes")),
        _sizes(entry.get("output_sizes")),
    )
    schedule = recording.schedule(group, dump.rank)
    schedule.add(
        seq,
        recording.kind(kind),
        recording.site(_user_frame(entry.get("frames"))),
        _time(entry.get("time_created_ns")),
        _time(entry.get("time_discovered_completed_ns")),
        order,
    )
    schedule.states[-1] = STATES.get(str(entry.get("state")), SCHEDULED)
    schedule.active[-1] = entry.get("retired") is False
    schedule.timeout_ms = max(schedule.timeout_ms, _time(entry.get("timeout_ms")))
    return True


def _add_message(recording: Recording, dump: FlightDump, group: str, entry: dict[str, Any]) -> None:
    """A message; its name tells its ends: ``nccl:send 0->1``, ``nccl:recv 1<-0``."""
    words = entry["profiling_name"].rpartition(":")[2].split()
    ends = words[-1].replace("<-", "->").split("->") if len(words) == 2 else []
    if len(ends) != 2 or not all(end.isdigit() and len(end) < 10 for end in ends):
        recording.health.note_name("bad_field", "flight.profiling_name", dump.name, 0)
        return
    is_send = words[0] == "send"
    mine, other = int(ends[0]), int(ends[1])
    source, target = (mine, other) if is_send else (other, mine)
    kind = Kind(words[0], (), _sizes(entry.get("input_sizes")), _sizes(entry.get("output_sizes")))
    elements = kind.elements if is_send or not kind.out_sizes else kind.out_elements
    site = recording.site(_user_frame(entry.get("frames")))
    recording.messages.append(Message(group, source, target, is_send, elements, site))


def _add_members(recording: Recording, dump: FlightDump, names: set[str]) -> None:
    """Who belongs to the groups. gloo names none of them in some dumps; it can only mean the only one there is."""
    for key, config in dump.groups.items():
        name = key if key else next(iter(names)) if len(names) == 1 else None
        ranks = _ranks(config.get("ranks")) if isinstance(config, dict) else []
        if name is None or not ranks or name not in names | recording.groups.keys() | {key}:
            continue
        group = recording.group(name)
        group.members.update(ranks)
        group.is_certain = True
        description = config.get("desc")
        group.description = group.description or (description if isinstance(description, str) else "")


def add_world(recording: Recording) -> None:
    """After all dumps: the group of the whole world has all ranks that any dump knows of."""
    known = set(recording.ranks)
    for group in recording.groups.values():
        known |= group.members
    for group in recording.groups.values():
        if group.description == WORLD_NAME:
            group.members |= known
            group.is_certain = True
    recording.world_size = max(recording.world_size, max(known, default=-1) + 1)


def _ranks(value: Any) -> list[int]:
    """``[0, 1]``, which the recorder writes as a text."""
    if isinstance(value, str):
        parts = value.strip("[] ").split(",")
        value = [int(part) for part in parts if part.strip().isdecimal() and len(part) < 12]
    ranks = value if isinstance(value, list) else []
    return [rank for rank in ranks if type(rank) is int and 0 <= rank < MAX_RANKS]


def _user_frame(frames: Any) -> Frame | None:
    """The user's line, out of frames with the innermost first."""
    first: Frame | None = None
    for frame in frames if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
        if isinstance(file, str) and type(line) is int and not file.startswith("<"):
            found = Frame(file, line, name if isinstance(name, str) else "", "")
            if not found.is_library:
                return found
            first = first or found
    return first


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(tuple(n for n in size if type(n) is int) if isinstance(size, list | tuple) else () for size in value)


def _names(value: Any) -> tuple[str, ...]:
    names: Sequence[Any] = value if isinstance(value, list | tuple) else ()
    return tuple(DTYPES.get(name, name) for name in names if isinstance(name, str))


def _time(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0
