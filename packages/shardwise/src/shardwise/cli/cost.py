"""``shardwise cost``: what the collectives of a program send along each axis, how long it takes, what is dearest."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.finding import shown_path
from shardwise.diagnostics.printing.printable import columns
from shardwise.diagnostics.printing.quantities import byte_count, duration
from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from .options.link_options import link_options, links_of
from .options.mesh_option import MeshParam
from .options.module_option import module_option
from .runs.guard import OWN_PROCESS, guarded

if TYPE_CHECKING:
    from shardwise.diagnostics.result import RunResult
    from shardwise.diagnostics.source_location import SourceLocation
    from shardwise.mesh.axis import MeshAxis
    from shardwise.planner.cost import Cost
    from shardwise.planner.links import Links
    from shardwise.uniformity.calls import Trace, TracedCall, Wait
    from shardwise.uniformity.cheaper_moves import CheaperWay
    from shardwise.uniformity.links_used import KnownAxes
    from shardwise.uniformity.moves_in_a_row import TypedMove

EPILOG = """\b
Examples:
  shardwise cost train.py --mesh dp=2,tp=4
  shardwise cost train.py --mesh dp=2,tp=4 --bandwidth tp=nvlink,dp=network --latency dp=10
  shardwise cost -m mypackage.train --mesh dp=8 --format json -- --steps 1
"""
DEAREST = 3


@dataclass(frozen=True)
class CollectiveLine:
    """All calls of one collective at one line of the program.

    ``axis``      None for a group of ranks that no axis of the mesh has.
    ``seconds``   of all of them together, as ``bytes`` is.
    ``waits``     how many of them the rank waits for before it goes on.
    ``move``      what it does to types, if a typed call is behind it.
    """

    op: str
    over: str
    axis: MeshAxis | None
    shape: tuple[int, ...]
    dtype: str
    transition: str
    place: str
    calls: int
    bytes: int
    seconds: float
    waits: int
    move: TypedMove | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "op": self.op, "over": self.over, "shape": list(self.shape), "dtype": self.dtype,
            "type": self.transition or None, "at": self.place, "calls": self.calls, "bytes": self.bytes,
            "time_s": self.seconds, "blocking": self.waits,
        }  # fmt: skip


@dataclass(frozen=True)
class StepTotals:
    """Of ``count`` whole steps together: calls, bytes, seconds and blocking calls by axis."""

    count: int
    totals: Mapping[str, tuple[int, int, float, int]]

    def shown(self) -> list[str]:
        """What one has, on average."""
        rows = [["over", "calls", "bytes", "time"]]
        rows += [
            [over, f"{calls / self.count:.4g}", byte_count(round(received / self.count)), duration(time / self.count)]
            for over, (calls, received, time, _) in self.totals.items()
        ]
        whose = "" if self.count == 1 else f", the mean of the {self.count}"
        return ["", f"a step after the first{whose}", *columns(rows)]

    def as_dict(self) -> dict[str, object]:
        return {
            "counted": self.count,
            "axes": {
                over: {"calls": calls / self.count, "bytes": received / self.count, "time_s": time / self.count}
                for over, (calls, received, time, _) in self.totals.items()
            },
        }


@dataclass(frozen=True)
class Nothing:
    """What is said where there is nothing to count, and what may be done about it."""

    message: str
    help: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: RunResult) -> Nothing:
        """Of a run without collectives."""
        said = "no collective over more than one rank"
        if (where := result.runs_alone) is not None:
            return cls(f"{said}: {where}", (result.larger_mesh("cost"),))
        return cls(f"{said}: rank 0 issues none on mesh {result.mesh}")

    def shown(self) -> str:
        """In lines."""
        return "\n".join([self.message, *(f"  = help: {one}" for one in self.help)])

    def as_dict(self) -> dict[str, object]:
        return {"message": self.message, "help": list(self.help)}


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="SCRIPT [-- SCRIPT ARGS]")
@module_option("Run")
@click.option("--mesh", type=MeshParam(), required=True, metavar="AXES", help="Axes and sizes, outermost first.")
@link_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@click.pass_context
def cost(
    context: click.Context,
    words: tuple[str, ...],
    module: str | None,
    mesh: MeshShape,
    bandwidth: Mapping[str, float] | None,
    latency: Mapping[str, float] | None,
    form: str,
) -> ExitCode:
    """Count what a program sends: run rank 0 of the mesh, the others imagined, and add up its collectives.

    The calls are counted by the model of shardwise plan: bytes that a rank receives in rings, over the bandwidth of the
    axis. What the program computes takes no time here. A step ends where the program's optimizer has gone on.

    Exit codes: 0 counted, 2 wrong usage, or the program crashed.
    """
    if module is None and not words:
        raise click.UsageError("say what to run: shardwise cost SCRIPT --mesh dp=2,tp=2")
    from shardwise.mesh.current import set_current_mesh
    from shardwise.uniformity.cheaper_moves import cheaper_ways
    from shardwise.uniformity.links_used import KnownAxes
    from shardwise.uniformity.moves_in_a_row import moves_seen
    from shardwise.uniformity.overlap import seconds_as_issued
    from shardwise.uniformity.steps import StepEnds

    from .runs.run import CheckOptions

    axes = mesh.as_axes()
    with set_current_mesh(axes):
        links = links_of(bandwidth, latency, axes, Path(words[0]).parent if words and not module else Path.cwd())
    program = Program(module=module, arguments=words) if module else Program(words[0], "", words[1:])
    program.require()
    death = guarded() if context.find_root().obj is OWN_PROCESS else None
    if death is not None:
        raise click.ClickException(f"the program stopped, so nothing is counted: it {death.how}")
    from .runs.schedule import check_recorded

    steps = StepEnds()
    with moves_seen() as seen:
        options = CheckOptions(mesh.ranks, mesh=mesh, strict=False)
        result, [trace] = check_recorded(program, options, steps)
    if result.stopped is not None:
        at = result.stopped.location
        where = "" if at is None else f" at {at.file}:{at.line}"
        said = result.stopped.text or result.stopped.reason.value
        if result.last_error is not None:
            said = result.last_error.headline
        raise click.ClickException(f"the program stopped{where}, so nothing is counted: {said}")
    with set_current_mesh(axes):
        moves = {(_place(one.location), one.op, repr(one.axis)): one for one in seen.moves}
        known = KnownAxes.of([trace], axes.values())
        lines = [replace(one, move=moves.get((one.place, one.op, one.over))) for one in _lines(trace, known, links)]

        def over(call: TracedCall) -> MeshAxis | None:
            return known.used(call, trace.rank)

        issued = seconds_as_issued(trace, lambda call: _paid(call, over(call), links)[1], over)
        count, events = steps.within(trace.events)
        step = StepTotals(count, _totals(_lines(replace(trace, events=events), known, links)))
        ways = _ways(cheaper_ways(seen.pairs, links))
        nothing = None if lines else Nothing.of(result)
        if form == "json":
            click.echo(_json(lines, step, issued, ways, nothing))
        else:
            click.echo(_text(lines, step, issued, ways) if nothing is None else nothing.shown())
    return ExitCode.CLEAN


def _paid(call: TracedCall, over: MeshAxis | None, links: Links) -> tuple[Cost, float]:
    """What one call over an axis costs, and the seconds that it takes."""
    from shardwise.planner.cost import cost_of

    size = len(call.group.ranks) if not call.is_message else 2
    dtype = (call.dtypes or ("float32",))[0]
    paid = cost_of(call.kind, sum(math.prod(one) for one in call.shapes) if size > 1 else 0, size, dtype)
    return paid, paid.seconds(links.over(call.group.ranks) if over is None else links.along(over))


def _lines(trace: Trace, known: KnownAxes, links: Links) -> list[CollectiveLine]:
    """The calls by place, the dearest first."""
    from shardwise.uniformity.calls import Wait

    found: dict[tuple[object, ...], CollectiveLine] = {}
    for call, after in itertools.pairwise([*trace.events, None]):
        if call is None or isinstance(call, Wait) or call.kind == "new_group":
            continue
        if len(call.group.ranks) < 2 and not call.is_message:
            continue
        axis = known.used(call, trace.rank)
        shape, dtype = (call.shapes or ((),))[0], (call.dtypes or ("float32",))[0]
        paid, seconds = _paid(call, axis, links)
        where = _place(call.location)
        over = repr(axis) if axis is not None else call.group.name or str(call.group)
        key = (call.kind, over, shape, dtype, where, call.transition)
        old = found.get(key)
        waits = call.blocking or _is_one_call(call, after)
        so_far = (0, 0, 0.0, 0) if old is None else (old.calls, old.bytes, old.seconds, old.waits)
        found[key] = CollectiveLine(
            call.kind, over, axis, shape, dtype, call.transition, where,
            so_far[0] + 1, so_far[1] + paid.bytes, so_far[2] + seconds, so_far[3] + waits,
        )  # fmt: skip
    return sorted(found.values(), key=lambda one: -one.seconds)


def _is_one_call(call: TracedCall, after: TracedCall | Wait | None) -> bool:
    """``dist.send`` and ``dist.recv`` begin a message and wait for it."""
    from shardwise.uniformity.calls import Wait

    return call.is_message and isinstance(after, Wait) and after.location == call.location


def _hidden(line: CollectiveLine, lines: Sequence[CollectiveLine]) -> str:
    """How much of it other links could carry meanwhile; empty if it is not waited for, or nothing else runs."""
    others = [one for one in lines if line.axis and one.axis and line.axis.isorthogonal(one.axis)]
    apart = sum(one.seconds for one in others)
    if not line.waits or not apart:
        return ""
    names = list(dict.fromkeys(one.over for one in others))
    busy = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} busy"
    most = duration(min(line.seconds, apart))
    early = {"send": "isend", "recv": "irecv"}.get(line.op, "async_op=True")
    return f"waited for at once; started early ({early}), {most} of it could pass while {busy}"


def _cheaper(line: CollectiveLine) -> str:
    """Another type of the result that the planner reaches with fewer bytes; empty if it knows none."""
    from shardwise.planner.route import plan
    from shardwise.types.placement import P, R, V
    from shardwise.types.spec import make_entry, spec_of
    from shardwise.types.tensor_type import TensorType

    axis, shape = line.axis, line.shape if line.move is None else line.move.shape
    if axis is None or line.op not in ("all_reduce", "all_gather") or not shape:
        return ""

    def cut(dim: int) -> TensorType:
        return TensorType.of({axis: V}, spec_of(make_entry([axis] if at == dim else []) for at in range(len(shape))))

    if line.op == "all_reduce":
        whole, src, now = shape, TensorType.of({axis: P}), "P"
        dims = list(range(len(shape)))
    else:
        joined = 0 if line.move is None else line.move.dim
        whole = tuple(length * axis.size() if at == joined else length for at, length in enumerate(shape))
        src, now = cut(joined), f"S({joined})"
        dims = [at for at in range(len(shape)) if at != joined]
    here = plan(whole, line.dtype, src, TensorType.of({axis: R})).bytes
    fits = [dim for dim in dims if whole[dim] % axis.size() == 0]
    best = min(fits, key=lambda dim: plan(whole, line.dtype, src, cut(dim)).bytes, default=None)
    if best is None:
        return ""
    way = plan(whole, line.dtype, src, cut(best))
    if way.bytes >= here:
        return ""
    share = f"{way.bytes / here:.2f} of the bytes"
    return f"{now} -> S({best}) over {axis!r} is {way.steps[-1].op} with {share}, where what follows can take shards"


def _ways(found: Iterable[CheaperWay]) -> dict[str, str]:
    """By the places of the moves: one way that does what two of them do one after another."""
    ways: dict[str, str] = {}
    for one in found:
        places = [_place(move.location) for move in (one.first, one.then)]
        steps = ", ".join(step.op for step in one.way.collectives) or "no collective"
        both = f"{one.first.op} ({places[0]}), then {one.then.op} ({places[1]})"
        share = f"{steps} with {one.way.bytes / one.bytes_now:.2f} of the bytes"
        said = f"{both}: {' and '.join(one.transitions)} is {share}, if nothing else takes what is between"
        for place in places:
            ways.setdefault(place, said)
    return ways


def _place(location: SourceLocation | None) -> str:
    return "" if location is None else f"{shown_path(location.file, os.getcwd())}:{location.line}"


def _totals(lines: Sequence[CollectiveLine]) -> dict[str, tuple[int, int, float, int]]:
    """Calls, bytes, seconds and blocking calls by axis."""
    found: dict[str, tuple[int, int, float, int]] = {}
    for line in lines:
        calls, received, seconds, waits = found.get(line.over, (0, 0, 0.0, 0))
        found[line.over] = (calls + line.calls, received + line.bytes, seconds + line.seconds, waits + line.waits)
    return found


def _text(lines: Sequence[CollectiveLine], step: StepTotals, issued: float, ways: Mapping[str, str]) -> str:
    totals = _totals(lines)
    rows = [["over", "calls", "bytes", "time", "waited for at once"]]
    rows += [[over, str(calls), byte_count(received), duration(time), f"{waits} of {calls}"]
             for over, (calls, received, time, waits) in totals.items()]  # fmt: skip
    seconds = [one[2] for one in totals.values()]
    shown = columns(rows) + (step.shown() if step.totals else [])
    times = [["one after another", duration(sum(seconds))], ["as the program waits for them", duration(issued)]]
    if len(seconds) > 1:
        times.append(["if those over different axes overlapped entirely", duration(max(seconds))])
    shown += ["", *columns(times)]
    shown += ["", "dearest"]
    for line in lines[:DEAREST]:
        many = f"{line.calls} x " if line.calls > 1 else ""
        typed = f" {line.transition}" if line.transition else ""
        tensor = f"{line.dtype}{list(line.shape)}"
        paid = f"{byte_count(line.bytes)}, {duration(line.seconds)}"
        shown.append(f"  {many}{line.op}{typed} of {tensor} over {line.over}: {paid}  {line.place}")
        cheaper = ways.get(line.place) or _cheaper(line)
        if cheaper:
            shown.append(f"    cheaper: {cheaper}")
        hidden = _hidden(line, lines)
        if hidden:
            shown.append(f"    overlap: {hidden}")
    return "\n".join(shown)


def _json(
    lines: Sequence[CollectiveLine],
    step: StepTotals,
    issued: float,
    ways: Mapping[str, str],
    nothing: Nothing | None,
) -> str:
    totals = _totals(lines)
    return json.dumps(
        {
            "schema": "shardwise.cost/1",
            "axes": {
                over: {"calls": calls, "bytes": received, "time_s": time, "blocking": waits}
                for over, (calls, received, time, waits) in totals.items()
            },
            "step": step.as_dict() if step.count else None,
            "time_s": sum(one[2] for one in totals.values()),
            "time_as_issued_s": issued,
            "time_overlapped_s": max((one[2] for one in totals.values()), default=0.0),
            "collectives": [
                {
                    **line.as_dict(),
                    "cheaper": (ways.get(line.place) or _cheaper(line) or None) if at < DEAREST else None,
                    "overlap": (_hidden(line, lines) or None) if at < DEAREST else None,
                }
                for at, line in enumerate(lines)
            ],
            "nothing": None if nothing is None else nothing.as_dict(),
        },
        indent=2,
    )
