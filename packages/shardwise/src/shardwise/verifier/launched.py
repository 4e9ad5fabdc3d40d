"""How is a program verified on ranks that a launcher has started? Each compares its copies where they lie.

One process of every node runs the program on one rank first, on the CPU, into a file of references; or all read a file
that was recorded before. Then every rank runs the program in this process, as the launcher meant it, and rank 0 puts
together what the ranks tell (``traces.py``).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, cast

import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.printing.quantities import byte_count
from shardwise.diagnostics.source import add_internal_prefix
from shardwise.host.accelerators.devices import nothing_compiled
from shardwise.host.launcher import LaunchedRank, without_launcher
from shardwise.interop.torch_compat import groups_watched
from shardwise.mesh.made_groups import axes_of_groups
from shardwise.oracle.reassemble import Grid
from shardwise.types.aliases import Axis
from shardwise.worlds.launched.job import LaunchedJob
from shardwise.worlds.launched.rank import launched_world
from shardwise.worlds.launched.watch import Loss
from shardwise.worlds.waiting import listed
from shardwise.worlds.waiting import told as told_standings

from .comparison.compare import compare
from .comparison.notes import with_feed, with_notes
from .comparison.traces import Told, TracingRecorder, digests, rebuilt, whole_of
from .records.failure import Failure
from .records.options import VerifyOptions
from .records.record import RankRun
from .records.references import References, load
from .records.subject import Subject
from .runs.crash import crash_among
from .runs.one_rank import merged_types, record_run, shown_mesh, with_derivatives
from .runs.processes import free_port
from .runs.second_run import Attempt, Command, DrawnData, answer_with, forget_drawn, is_second, together
from .runs.warming import warm_up
from .text import Verdict

_LAST_WORDS = 12
_DRAWN = "drawn"


@dataclass
class Travelled:
    """What was told and asked for.

    ``told_bytes``  by all ranks to rank 0; ``asked_bytes`` of ``asked`` tensors that rank 0 wanted to see.
    ``most_bytes``  of copies that one rank held at a time.
    """

    told_bytes: int = 0
    asked: int = 0
    asked_bytes: int = 0
    most_bytes: int = 0
    reference_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{byte_count(self.told_bytes)} told by the ranks, {byte_count(self.asked_bytes)} of {self.asked} tensors "
            f"asked for; at most {byte_count(self.most_bytes)} of copies on a rank; references of "
            f"{byte_count(self.reference_bytes)}"
        )


@dataclass
class LaunchedRuns:
    """The runs as ``run_both`` gives them: the ranks of the mesh, and behind them the one rank; or why there are none.

    ``mesh``  the axes of the program, as given or as it has made them.
    ``last``  the job does not run again, with what all ranks have drawn given to the one rank.
    """

    mesh: dict[str, int]
    runs: list[RankRun] = field(default_factory=list)
    failure: Failure | None = None
    travelled: Travelled = field(default_factory=Travelled)
    last: bool = True


AGAIN = -1
"""What ``conclude`` says in place of an exit code: the ranks draw what one rank does not, so run once more."""


@dataclass(frozen=True)
class Launched:
    """What is to be run on the ranks of a job.

    ``me``          the rank that this process is.
    ``mesh``        the axes if they were given; else those of the program's own mesh.
    ``references``  a file of them; empty: each node makes its own.
    ``words``       the command line that makes one, behind ``shardwise verify --record FILE``.
    ``again``       this process, where it may become the same command once more.
    """

    me: LaunchedRank
    subject: Subject
    options: VerifyOptions
    mesh: Mapping[str, int] | None
    references: str
    words: Sequence[str]
    again: Command | None = None

    def run(self, tell: Callable[[LaunchedRuns], object], conclude: Callable[[LaunchedRuns], int]) -> int:
        """The exit code, the same on every rank. ``conclude``, on rank 0, makes it of the runs and reports.

        ``tell``  reports a job that lost a rank, on one of those that are left.
        """
        add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
        sizes = dict(self.mesh or {"rank": self.me.size})
        # Kept: while the program runs, what it prints goes elsewhere.
        with open(os.dup(sys.stdout.fileno()), "w") as stdout:
            code, attempt = self._watched(stdout, sizes, tell, conclude)
        if self.again is not None and attempt is not None:
            self.again.again(attempt)
        return code

    def _watched(
        self,
        stdout: TextIO,
        sizes: dict[str, int],
        tell: Callable[[LaunchedRuns], object],
        conclude: Callable[[LaunchedRuns], int],
    ) -> tuple[int, Attempt | None]:
        """The exit code; or how the job runs again."""

        def on_loss(loss: Loss) -> None:
            with contextlib.redirect_stdout(stdout):
                tell(self._lost(loss, sizes))
            stdout.flush()

        job = LaunchedJob(self.me, self.options.timeout_s, on_loss)
        job.leaving.append(forget_drawn)
        with job.watched():
            return self._together(job, sizes, conclude)

    def _together(
        self, job: LaunchedJob, sizes: dict[str, int], conclude: Callable[[LaunchedRuns], int]
    ) -> tuple[int, Attempt | None]:
        failure, reference = None, None
        try:
            reference = load(self.references or self._recorded(job))
            reference.require(self.options)
        except (SpmdValueError, _NoReferences) as error:
            failure = Failure("on one rank", str(error).partition("\n")[0], None, str(error).partition("\n")[2])
        job.next_part()
        if failure is not None or reference is None:
            # Every rank comes to the same conclusion, or nearly: what rank 0 says counts.
            runs = LaunchedRuns(sizes, failure=failure)
            return self._end(job, lambda last: conclude(runs), lambda at: None, DrawnData())
        recorder = TracingRecorder(reference.run.entries, self.options.rtol)
        came, meshes = self._run_here(recorder, sizes)
        if came.crash is not None:
            job.crashed(came.crash)
        drawn = DrawnData(came.batches, (came.draws,))
        came.batches, came.draws = digests(came.batches), {}
        told = Told(came, recorder.traces, recorder.most_bytes)
        entries, kept, rest = told.parts()
        parts = [job.gather_shared("entries", entries), job.gather_shared("traces", kept), job.gather("told", rest)]
        everyone = whole_of(zip(*map(list, parts), strict=True))
        axes = sizes if self.mesh else meshes or sizes

        def compared(last: bool) -> int:
            runs = self._compared(job, everyone, reference, recorder, axes)
            return conclude(replace(runs, last=last or self.again is None))

        return self._end(job, compared, lambda at: recorder.kept[at], drawn)

    def _end(
        self, job: LaunchedJob, conclude: Callable[[bool], int], answer: Callable[[Any], Any], drawn: DrawnData
    ) -> tuple[int, Attempt | None]:
        """How the job ends, the same on every rank. ``conclude`` is told whether it has to."""
        if self.me.rank != 0:
            code, attempt = job.serve(lambda asked: answer_with(drawn) if asked == _DRAWN else answer(asked))
            if attempt is not None and self.me.local_rank == 0:
                attempt = replace(attempt, drawn=job.channel.get(_DRAWN, self.options.timeout_s))
            job.heard()
            return code, attempt
        code, given = conclude(False), b""
        if code == AGAIN:
            given = together(drawn, self.me.size, lambda rank: cast(bytes, job.ask(rank, _DRAWN)))
            code = code if given else conclude(True)
        attempt = Attempt(free_port("")) if given else None
        job.channel.put(_DRAWN, given)
        job.end((code, attempt))
        return code, None if attempt is None else replace(attempt, drawn=given)

    def _compared(
        self,
        job: LaunchedJob,
        everyone: Sequence[Told],
        reference: References,
        recorder: TracingRecorder,
        sizes: dict[str, int],
    ) -> LaunchedRuns:
        def ask(rank: int, at: int) -> Any:
            return recorder.kept[at] if rank == 0 else job.ask(rank, at)

        told_bytes = job.channel.received_bytes
        made = rebuilt(everyone, reference.run.entries, ask)
        called: dict[Axis, str] = {axis: name for name, axis in Grid.of(sizes).axes.items()}
        for run in made.runs:
            run.axes = {**run.axes, **called}
        most = max(one.most_bytes for one in everyone)
        travelled = Travelled(told_bytes, made.asked, made.asked_bytes, most, reference.nbytes)
        return LaunchedRuns(sizes, [*made.runs, reference.run], None, travelled)

    def _run_here(self, recorder: TracingRecorder, sizes: Mapping[str, int]) -> tuple[RankRun, dict[str, int] | None]:
        """What this rank records, and the axes of the first mesh of all ranks that the program makes, or of groups."""
        warm_up()
        filled = {**sizes, **({} if self.mesh else {"world_size": self.me.size})}
        program = self.subject.prepare(filled)
        meshes: list[dict[str, int]] = []
        given = sizes if self.mesh is not None or self.subject.joined else None
        world = launched_world(self.me, given, meshes.append, joined=self.subject.joined)
        place = self.me.rank, self.me.size
        shown = shown_mesh(sizes) if self.mesh else ""
        groups: list[tuple[int, ...]] = []
        with groups_watched(groups.append), nothing_compiled():
            came = record_run(program, world, self.options, recorder, place=place, name=str(self.subject), mesh=shown)
        made = next((mesh for mesh in meshes if math.prod(mesh.values()) == self.me.size), None)
        return came, made or axes_of_groups(groups, self.me.size) or None

    def _recorded(self, job: LaunchedJob) -> str:
        """The file of references of this node, made by its first rank. Errors: _NoReferences."""
        name = f"references/{self.me.node}"
        if self.me.local_rank == 0:
            folder = tempfile.mkdtemp(prefix="shardwise-references-")
            _remove_at_the_end(job, folder)
            file = str(Path(folder) / "references")
            said = _record(job, file, self.words, self.options.timeout_s)
            forget_drawn()
            job.channel.put(name, f"{'' if said is None else said}\0{file}".encode())
        text, _, file = job.channel.get(name, self.options.timeout_s * 2).decode().partition("\0")
        _remove_at_the_end(job, str(Path(file).parent))  # also where the rank that has made it is killed
        if text:
            raise _NoReferences(text)
        return file

    def _lost(self, loss: Loss, sizes: dict[str, int]) -> LaunchedRuns:
        crashed = [RankRun(crash=crash, rank=rank) for rank, crash in loss.crashes.items()]
        failure = crash_among(crashed, "on the mesh", self.me.size) if crashed else None
        if failure is None:
            failure = Failure("on the mesh", loss.text, None, told_standings(loss.standings))
        elif loss.silent:
            text = f"{listed(loss.silent)} of {self.me.size} ended without a word; then {failure.text}"
            failure = replace(failure, text=text)
        return LaunchedRuns(sizes, failure=failure)


def verdict_on(subject: Subject, options: VerifyOptions, launched: LaunchedRuns) -> Verdict:
    """What the runs on launched ranks say."""
    shown = shown_mesh(launched.mesh)
    if launched.failure is not None:
        return Verdict(str(subject), shown, failure=launched.failure)
    *ranks, alone = launched.runs
    numbers = with_notes(compare(ranks, alone, rtol=options.rtol, mesh=launched.mesh), ranks, alone)
    if options.feed:
        numbers = with_feed(numbers, ranks, alone, asked=not is_second())
    types = with_derivatives(merged_types([run.types for run in ranks]), alone.types)
    return Verdict(str(subject), shown, types, numbers)


def needs_drawn(runs: LaunchedRuns, verdict: Verdict) -> bool:
    """Whether the two runs part, which may be for what each rank draws: what is found beside it says less."""
    numbers = verdict.numbers
    if numbers is None or numbers.parting is None or runs.last:
        return False
    return numbers.parting.key.kind in ("drawn", "input") or any(run.batches.iterated for run in runs.runs[:-1])


class _NoReferences(Exception):
    """The run on one rank did not come to its end."""


def _remove_at_the_end(job: LaunchedJob, folder: str) -> None:
    job.leaving.append(functools.partial(shutil.rmtree, folder, ignore_errors=True))


def _record(job: LaunchedJob, file: str, words: Sequence[str], timeout_s: float) -> str | None:
    """Run the program on one rank in a process of its own; None if that went well, else what it said."""
    command = [sys.executable, "-m", "shardwise", "verify", "--record", file, "--timeout", str(timeout_s), *words]
    with subprocess.Popen(
        command, env=without_launcher(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as recording:
        job.leaving.append(recording.terminate)
        try:
            said = recording.communicate(timeout=timeout_s * 1.5)
        except subprocess.TimeoutExpired:
            recording.kill()
            return f"the run on one rank did not finish in {timeout_s:g} s"
    if recording.returncode == 0:
        return None
    return "\n".join(["it could not be recorded", *"".join(said).strip().splitlines()[-_LAST_WORDS:]])
