"""Profiler traces to collectives and steps of each rank, and the operators with the most time of their own."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tracewise.model.collectives import DTYPES, MAX_RANKS, Kind, Recording, operation
from tracewise.read.archive import InputError
from tracewise.read.kineto import ProfilerTrace

ANNOTATION = re.compile(r"^(?:gloo|nccl|mpi|ucc|xccl|hccl):\w+")
KERNEL = re.compile(r"^(?:ncclDevKernel|ncclKernel)")
STEP = re.compile(r"^(?:ProfilerStep#|[Ss]tep[ #]*)\d+$")
MAX_OPERATORS = 20_000_000


@dataclass(slots=True)
class Step:
    """One step of one rank; times in nanoseconds of the epoch."""

    rank: int
    name: str
    start_ns: int
    dur_ns: int


@dataclass(slots=True)
class OperatorTime:
    """What all calls of one operator took on one rank without the operators inside."""

    name: str
    count: int = 0
    self_us: float = 0.0


@dataclass(slots=True)
class Profile:
    """What is taken from one rank's trace beside its collectives."""

    rank: int
    steps: list[Step] = field(default_factory=list)
    operators: list[OperatorTime] = field(default_factory=list)


@dataclass(slots=True)
class _Call:
    start_ns: int
    end_ns: int
    kind: Kind
    seq: int | None


def add_trace(recording: Recording, trace: ProfilerTrace) -> Profile:
    """Takes in one rank's trace. InputError if nothing says whose it is."""
    threads: dict[Any, tuple[array[float], array[float], array[int]]] = defaultdict(
        lambda: (array("d"), array("d"), array("I"))
    )
    names: dict[str, int] = {}
    annotations: dict[str, list[_Call]] = defaultdict(list)
    kernels: dict[str, list[_Call]] = defaultdict(list)
    steps: list[tuple[str, int, int]] = []
    for event in trace.events():
        name, start, dur = event.get("name"), _time(event.get("ts")), _time(event.get("dur"))
        if event.get("ph") != "X" or not isinstance(name, str) or start is None or dur is None:
            continue
        begin = trace.base_ns + int(start * 1000)
        end = begin + int(dur * 1000)
        match event.get("cat"):
            case "cpu_op" if sum(len(found[0]) for found in threads.values()) < MAX_OPERATORS:
                starts, durations, numbers = threads[str(event.get("pid")), str(event.get("tid"))]
                starts.append(start)
                durations.append(dur)
                numbers.append(names.setdefault(name, len(names)))
            case "user_annotation" if ANNOTATION.match(name):
                _keep(annotations, trace, event, name, begin, end)
            case "user_annotation" if STEP.match(name):
                steps.append((name, begin, end - begin))
            case "kernel" if KERNEL.match(name):
                args = event.get("args")
                told = args.get("Collective name") if isinstance(args, dict) else None
                _keep(kernels, trace, event, str(told or name), begin, end)
    rank = trace.rank
    if rank is None:
        raise InputError(
            f"{trace.source.name}: whose trace is it? Neither it nor its name tells a rank, as in rank3.json"
        )
    if trace.is_cut or trace.damaged:
        recording.health.note("truncated" if trace.is_cut else "bad_json", trace.source.name, 0)
    recording.ranks.add(rank)
    _add_groups(recording, trace)
    # Kernels tell when data moved; annotations on the host are all there is without a GPU.
    for group, calls in (kernels or annotations).items():
        calls.sort(key=lambda call: call.start_ns)
        for number, call in enumerate(calls, 1):
            seq = number if call.seq is None else call.seq
            recording.schedule(group, rank).add(
                seq, recording.kind(call.kind), 0, call.start_ns, call.end_ns, call.start_ns
            )
    found = Profile(rank, [Step(rank, *step) for step in sorted(steps, key=lambda step: step[1])])
    times = [OperatorTime(name) for name in names]
    for columns in threads.values():
        _add_self_times(times, *columns)
    found.operators = sorted(times, key=lambda time: -time.self_us)
    return found


def _keep(calls: dict[str, list[_Call]], trace: ProfilerTrace, event: dict[str, Any], name: str, begin: int, end: int
) -> None:  # fmt: skip
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    group = args.get("Process Group Name")
    if not isinstance(group, str) or not group:
        config = trace.distributed.get("pg_config")
        only = config[0].get("pg_name") if isinstance(config, list) and len(config) == 1 and _is_dict(config) else None
        group = only if isinstance(only, str) else "unknown"
    sizes: tuple[tuple[int, ...], ...] = tuple(
        (count,) for key in ("In msg nelems", "Out msg nelems") if type(count := args.get(key)) is int and count >= 0
    )
    dims = args.get("Input Dims")
    if not sizes and isinstance(dims, list):
        sizes = (tuple(n for n in dims[0] if type(n) is int),) if dims and isinstance(dims[0], list) else ()
    dtype = args.get("dtype")
    seq = args.get("Seq")
    kind = Kind(
        operation(name),
        (DTYPES.get(dtype, dtype),) if isinstance(dtype, str) else (),
        sizes[:1],
        sizes[1:2],
    )
    calls[group].append(_Call(begin, end, kind, seq if type(seq) is int and 0 <= seq < 1 << 62 else None))


def _add_groups(recording: Recording, trace: ProfilerTrace) -> None:
    config = trace.distributed.get("pg_config")
    size = trace.distributed.get("world_size")
    recording.world_size = max(recording.world_size, size if type(size) is int and size <= MAX_RANKS else 0)
    for entry in config if isinstance(config, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("pg_name"), str):
            group = recording.group(entry["pg_name"])
            ranks = entry.get("ranks")
            description = entry.get("pg_desc")
            group.description = description if isinstance(description, str) else ""
            if isinstance(ranks, list) and all(type(rank) is int for rank in ranks) and ranks:
                group.members.update(ranks)
                group.is_certain = True


def _add_self_times(
    times: list[OperatorTime], starts: array[float], durations: array[float], names: array[int]
) -> None:
    """Operators of one thread lie inside each other: what is inside is taken from what is around it."""
    open_calls: list[tuple[float, int]] = []
    for n in sorted(range(len(starts)), key=lambda n: (starts[n], -durations[n])):
        while open_calls and open_calls[-1][0] <= starts[n]:
            open_calls.pop()
        if open_calls:
            times[names[open_calls[-1][1]]].self_us -= durations[n]
        times[names[n]].self_us += durations[n]
        times[names[n]].count += 1
        open_calls.append((starts[n] + durations[n], n))


def _is_dict(config: list[Any]) -> bool:
    return isinstance(config[0], dict)


def _time(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e18 else None
