"""What a call of ``shardwise check`` asks for, and doing it: refuse what contradicts itself, run, report, mend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import click

from shardwise.diagnostics.printing.limits import DEFAULT, EVERYTHING
from shardwise.diagnostics.result import NO_EXCEPTION, Collector, ExitCode, RunResult, StopReason
from shardwise.diagnostics.statistics import COUNTS
from shardwise.host.kept_process import KeptProcess, kept_process
from shardwise.host.launcher import LaunchedRank, launched_rank
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from ..options.configured import Configured, written
from ..options.declarations import declarations_of
from ..options.link_options import configured_links
from ..options.mesh_option import world_size_of
from ..options.output_file import JSON, PAGE, require_writable
from ..options.ranks_option import MOST, RankChoice
from ..options.shared_options import require_writer
from .guard import Death, guarded
from .report_forms import Form, rendered
from .screen import Color
from .shown_run import require_template, show_annotated, write_html
from .watching import is_watched_run, tell_watched, watch_runs

if TYPE_CHECKING:
    from shardwise.uniformity.calls import Trace

    from .run import CheckOptions

LAUNCHED_TIMEOUT_S = 3600.0
DEFAULT_WORLD_SIZE = 8
"""One host. Enough for a mesh of 2 x 4 and 2 x 2 x 2, and divisible by the usual sizes."""


@dataclass(frozen=True, kw_only=True)
class AskedCheck:
    """The arguments and options of a call, under the names that the command gives them, and what else decides.

    ``configured``   the settings of the project, which stand below the options.
    ``own_process``  the command was started as a process, and not called by another program.
    """

    configured: Configured
    own_process: bool
    words: tuple[str, ...]
    module: str | None
    mesh: MeshShape | None
    world_size: int | None
    rank: int | None
    ranks: RankChoice | None
    timeout_s: float | None
    schedule: str | None
    strict: bool
    observe: bool | None
    local: bool
    partials: Literal["infer", "explicit"]
    fake: bool
    device: str
    form: Form
    color: Color
    lists: tuple[str, ...]
    annotate: bool
    statistics: bool
    html: str | None
    diff: bool
    fix: bool
    watch: bool
    trace: bool
    everything: bool

    @cached_property
    def program(self) -> Program:
        """The script or module that is checked, with its arguments."""
        if self.module is None and not self.words:
            raise click.UsageError(
                "say which script to check: shardwise check SCRIPT, or script = [...] in [tool.shardwise]"
            )
        path, arguments = ("", self.words) if self.module else (self.words[0], self.words[1:])
        return Program(path, self.module or "", arguments, declarations_of(self.configured.settings))

    @cached_property
    def launched(self) -> LaunchedRank | None:
        """The rank that this process is, where a launcher has started it."""
        return launched_rank()

    @cached_property
    def size(self) -> int:
        """How many ranks the job has."""
        me = self.launched
        return me.size if me is not None else world_size_of(self.mesh, self.world_size, DEFAULT_WORLD_SIZE)

    @property
    def observes(self) -> bool:
        """Whether wrappers and torch's own marks give types."""
        return not self.strict if self.observe is None else self.observe

    def starts_watching(self) -> bool:
        """True in the forks of a command that watches, each of which is to be asked anew; False without ``--watch`` and
        in what such a fork is asked for. Errors: as of ``run``.
        """
        if not self.watch or is_watched_run():
            return False
        self._require()
        self._require_watchable()
        watch_runs(self.program, self.configured.files)
        return True

    def run(self) -> ExitCode:
        """Do all of it. Errors: click.UsageError for what contradicts itself and for what is not there."""
        if self.watch:
            tell_watched(self.configured.files)
        self._require()
        death = guarded() if self.launched is None and self.own_process else None
        if death is not None:
            self._reported(self._until(death))
            return ExitCode.BROKEN
        return self._run_here() if self.launched is None else self._run_launched(self.launched)

    def _require(self) -> None:
        self._require_forms()
        self._require_files()
        self._require_ranks()
        self.program.require()

    def _require_forms(self) -> None:
        """That the forms of the report which are asked for go together."""
        if (self.diff or self.fix) and self.form != "text":
            raise click.UsageError(f"--{'fix' if self.fix else 'diff'} is for people: leave out --format {self.form}")
        if self.statistics and (self.diff or self.fix or self.form not in COUNTS):
            raise click.UsageError("--statistics counts, as text or with --format json or badge: leave the others out")
        if self.form == "badge" and not self.statistics:
            raise click.UsageError("a badge has only numbers: add --statistics")

    def _require_files(self) -> None:
        """That what is to be written, or read, can be."""
        if self.diff or self.fix:
            require_writer("--diff and --fix")
        if self.html is not None:
            require_template()
        require_writable("--html", self.html, PAGE)
        require_writable("--schedule", self.schedule, JSON)
        self.configured.policy.require()

    def _require_ranks(self) -> None:
        """That there are such ranks."""
        me, mesh = self.launched, self.mesh
        if self.rank is not None and self.rank >= self.size:
            last = self.size - 1
            raise click.UsageError(f"--rank {self.rank} is not in a world of {self.size}: ranks go from 0 to {last}")
        if self.rank is not None and self.ranks is not None:
            raise click.UsageError(f"--rank {self.rank} runs one rank and --ranks several: leave one of them out")
        if self.timeout_s is not None and self.ranks is None and me is None:
            raise click.UsageError("--timeout is for ranks that are run side by side: add --ranks all")
        if self.ranks is not None:
            self.ranks.require(self.size, said_by=self.configured.said_by("ranks"))
        if me is not None and mesh is not None and mesh.ranks != me.size:
            raise click.UsageError(f"--mesh {mesh} has {mesh.arithmetic} ranks, and the launcher has started {me.size}")
        if me is not None:
            self._refuse_imagined()

    def _refuse_imagined(self) -> None:
        """Options of imagined ranks, where a launcher has started real ones."""
        imagined = {
            "--world-size": self.world_size,
            "--rank": self.rank,
            "--ranks": self.ranks,
            "--schedule": self.schedule,
            "--fake": self.fake,
            "--device": self.device,
            "--diff": self.diff,
            "--fix": self.fix,
            "--annotate": self.annotate,
            "--html": self.html,
        }
        unlike = [name for name, given in imagined.items() if given not in (None, False, "cpu")]
        if unlike:
            raise click.UsageError(
                f"{', '.join(unlike)} is for ranks that are imagined, and a launcher has started real ones"
            )

    def _require_watchable(self) -> None:
        if self.fix or self.launched is not None or not self.own_process:
            raise click.UsageError("--watch is for a command of its own, without --fix and without a launcher")

    def _check_options(self) -> CheckOptions:
        from .run import CheckOptions

        me = self.launched
        return CheckOptions(
            world_size=self.size,
            guessed=self.mesh is None and self.world_size is None and not (self.diff or self.fix),
            rank=self.rank or (0 if me is None else me.rank),
            mesh=self.mesh,
            strict=self.strict,
            observe=self.observes,
            local=self.local,
            partials=self.partials,
            device=self.device,
            fake=self.fake,
            trace=self.trace,
            whole_traceback=self.everything,
            plain_progress=self.form == "text" and (me is None or me.rank == 0),
            launched=me,
            record=self.annotate or self.html is not None,
            links=configured_links(self.configured.settings),
        )

    def _run_launched(self, me: LaunchedRank) -> ExitCode:
        """On every rank of a launcher; one of them reports."""
        from .launched import check_launched

        timeout_s = self.timeout_s or LAUNCHED_TIMEOUT_S
        options = self._check_options()
        return ExitCode(
            check_launched(me, self.program, options, timeout_s, lambda came: self._reported(came).exit_code)
        )

    def _run_here(self) -> ExitCode:
        """On ranks that are imagined, in this process."""
        options = self._check_options()
        from .further.data_opinion import asks_other_ranks, with_other_ranks
        from .further.global_opinion import asks_global_types, with_global_types

        with kept_process(wanted=self.own_process) as other:
            result, traces = self._checked(options, other)
            if asks_global_types(result, options):
                result = with_global_types(self.program, options, result, other)
            if self.ranks is None and asks_other_ranks(result, options):
                result = with_other_ranks(self.program, options, result, other)
            if self.schedule is not None:
                from .schedule import write_schedule

                write_schedule(self.schedule, traces, result)
            result = self._reported(result, traces)
            return self._mended(result, other) if self.diff or self.fix else result.exit_code

    def _checked(self, options: CheckOptions, other: KeptProcess) -> tuple[RunResult, Sequence[Trace]]:
        """What one rank finds, or several; and what they issued, where somebody asks for it.

        ``other``  runs the ranks if one has run here: a process in which it has remembers groups that are gone.
        """
        from shardwise.worlds.absent_objects import OtherRanksNeeded

        from .ranks import check_ranks
        from .run import check_program

        if self.ranks is not None:
            return check_ranks(self.program, options, self.ranks, self.timeout_s)
        try:
            if self.schedule is None and self.html is None:
                result = check_program(self.program, options)
                return self._with_values(result, options, other) or (result, ())
            from .schedule import check_recorded

            return check_recorded(self.program, options)
        except OtherRanksNeeded as needed:
            choice = RankChoice("all" if self.size <= MOST else "corners")
            click.echo(f"shardwise: {needed}, so this is --ranks {choice.word}", err=True)
            return other.call(check_ranks, self.program, options, choice)

    def _with_values(
        self, result: RunResult, options: CheckOptions, other: KeptProcess
    ) -> tuple[RunResult, Sequence[Trace]] | None:
        """What all ranks find where one has stopped at an assertion: of what it was asked, other ranks have the values.

        None where it is not so, or they stop too.
        """
        from .ranks import check_ranks

        stopped = result.stopped
        if stopped is None or not stopped.text.startswith(AssertionError.__name__):
            return None
        if options.fake or options.device != "cpu" or not 1 < self.size <= MOST:
            return None
        click.echo(
            "shardwise: an assertion does not hold without the values of other ranks, so this is --ranks all", err=True
        )
        came = other.call(check_ranks, self.program, options, RankChoice("all"))
        return None if came[0].stopped is not None else came

    def _until(self, death: Death) -> RunResult:
        """What is known of a program that has taken its process with it."""
        mesh = "" if self.mesh is None else str(self.mesh)
        collector = Collector(mesh=mesh, script=str(self.program), rank=self.rank or 0)
        for finding in death.findings:
            collector.add(finding)
        collector.count_checked(death.checked)
        collector.stop(StopReason.SCRIPT_ERROR, f"{NO_EXCEPTION}{death.how}", death.location)
        return collector.result()

    def _reported(self, result: RunResult, traces: Sequence[Trace] = ()) -> RunResult:
        """What is to be reported of ``result``, and it is."""
        chosen, policy = self.configured, self.configured.policy
        if chosen.writes is not None and result.stopped is None:
            click.echo(f"shardwise: {written(chosen, result)}", err=True)
            policy = replace(policy, baseline=chosen.writes)
        result = policy.applied(result, strict=self.strict, local=self.local)
        if self.html is not None:
            result = write_html(self.html, result, traces, settings=chosen.settings)
        if self.annotate:
            show_annotated(result, self.form, self.color, self.everything)
        if self.statistics:
            click.echo(COUNTS[self.form](result))
        else:
            limits = EVERYTHING if self.everything else DEFAULT.without(self.lists)
            click.echo(rendered(result, self.form, self.color, limits, chosen.settings.docs), color=True)
        return result

    def _mended(self, result: RunResult, other: KeptProcess) -> ExitCode:
        """Try the fixes, each in a process that is asked for what this one was."""
        from .fixing import mend, rerun_of

        typing = ["--strict" if self.strict else "--permissive", "--local" if self.local else "--global"]
        typing += ["--partials", self.partials, *self.configured.words]
        more = ["--observe" if self.observes else "--no-observe", "--device", self.device]
        more += ["--fake"] if self.fake else []
        rerun = rerun_of(self.program, self.mesh, self.size, typing, more, other, result.own_mesh)
        return mend(result, rerun, self.fix)
