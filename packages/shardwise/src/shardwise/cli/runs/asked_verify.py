"""What a call of ``shardwise verify`` asks for, and doing it: on own processes, on launched ranks, or recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import click

from shardwise.diagnostics.printing.limits import DEFAULT, EVERYTHING
from shardwise.diagnostics.result import ExitCode
from shardwise.host.launcher import LaunchedRank, launched_rank
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from ..options.configured import Configured, written
from ..options.declarations import declarations_of
from ..options.link_options import configured_links
from ..options.mesh_option import require_processes
from ..options.output_file import ARCHIVE, PAGE, require_writable
from .progress import progress
from .screen import Color, screen
from .shown_run import require_template, write_html

if TYPE_CHECKING:
    from shardwise.verifier.records.options import VerifyOptions
    from shardwise.verifier.records.subject import Subject
    from shardwise.verifier.text import Verdict


@dataclass(frozen=True, kw_only=True)
class AskedVerify:
    """The arguments and options of a call, under the names that the command gives them.

    ``configured``  the settings of the project, which stand below the options.
    ``layouts``     with ``record``: for ``shardwise infer``, which calls the command so.
    ``drawn``       with ``record``: for launched ranks, whose DataLoaders draw apart; what they have drawn, or nothing.
    ``own_process``  the command was started as a process, and not called by another program.
    """

    configured: Configured
    words: tuple[str, ...]
    module: str | None
    mesh: MeshShape | None
    record: str | None
    references: str | None
    against: str | None
    feed: bool | None
    layouts: bool
    drawn: str | None
    own_process: bool
    strict: bool
    local: bool
    partials: Literal["infer", "explicit"]
    every: bool
    double: bool
    rtol: float | None
    timeout_s: float
    form: Literal["text", "json"]
    html: str | None
    color: Color
    allow_inconclusive: bool
    everything: bool

    @cached_property
    def subject(self) -> Subject:
        """The script, module or function that is verified."""
        if self.module is None and not self.words:
            raise click.UsageError(
                "say what to verify: shardwise verify SCRIPT --mesh dp=2,tp=2, or script = [...] in [tool.shardwise]"
            )
        from shardwise.verifier.records.subject import Script, subject_named

        before = declarations_of(self.configured.settings)
        subject: Subject
        if self.module:
            subject = Script(Program(module=self.module, arguments=self.words))
        else:
            subject = subject_named(self.words[0], self.words[1:])
        return subject if before is None else subject.declared(before)

    def run(self) -> ExitCode:
        """Do all of it. Errors: click.UsageError for what contradicts itself and for what is not there."""
        subject = self.subject
        if self.record is not None:
            return self._recorded(self.record, subject)
        require_writable("--html", self.html, PAGE)
        if self.html is not None:
            require_template()
        me = launched_rank(alone=self.mesh is None or self.mesh.ranks == 1)
        if me is not None or self.references is not None:
            self._require_two_runs_elsewhere()
        return self._run_here() if me is None else self._run_launched(me)

    def _require_two_runs_elsewhere(self) -> None:
        """That nothing is asked for which needs both runs on this machine."""
        if self.against is not None:
            raise click.UsageError(
                "--against runs on this machine: on launched ranks, and with --references, record the reference "
                f"instead: shardwise verify --record FILE {self.against}"
            )
        if self.feed:
            raise click.UsageError(
                "--feed needs both runs on this machine: leave --references out, and start no launcher"
            )

    def _recorded(self, file: str, subject: Subject) -> ExitCode:
        """Run on one rank and write the references."""
        if self.references is not None:
            raise click.UsageError("--record writes references and --references reads them: leave one of them out")
        require_writable("--record", file, ARCHIVE)
        from shardwise.verifier.records.intervention import Intervention
        from shardwise.verifier.reference_runs import record_references
        from shardwise.verifier.runs.second_run import read_drawn

        axes = dict.fromkeys(self.mesh.names if self.mesh else ("rank",), 1)
        options = replace(self._verify_options(), show=False, record=False, feed=None, layouts=self.layouts)
        if self.drawn is not None:
            given = read_drawn(self.drawn) if self.drawn else None
            changed = None if given is None else Intervention(batches=given.batches, draws=given.draws)
            # Loaders draw apart as they do on the ranks; what they give here nobody asks for.
            options = replace(options, kept_bytes=1, changed=changed)
        doing = ["starting"]
        with progress(lambda: doing[0], plain=True):
            failure, said = record_references(file, subject, axes, options, lambda text: doing.__setitem__(0, text))
        click.echo(said)
        return ExitCode.BROKEN if failure else ExitCode.CLEAN

    def _verify_options(self) -> VerifyOptions:
        from shardwise.verifier.records.options import VerifyOptions

        return VerifyOptions(
            strict=self.strict,
            local=self.local,
            partials=self.partials,
            double=self.double,
            rtol=self.rtol,
            timeout_s=self.timeout_s,
            every=self.every,
            show=True,
            record=self.html is not None,
            feed=self.feed,
            links=configured_links(self.configured.settings),
        )

    def _run_launched(self, me: LaunchedRank) -> ExitCode:
        """On the ranks of a launcher; rank 0 reports."""
        from shardwise.verifier.launched import AGAIN, LaunchedRuns, needs_drawn, verdict_on
        from shardwise.verifier.runs.second_run import MOST_BYTES, Command, drawn_file, is_second

        from .launched import recording_words, run_launched

        flags = [flag for flag, given in (("--every", self.every), ("--double", self.double)) if given]
        options, again = self._verify_options(), None
        if self.references is None and self.feed is None:
            flags += ["--drawn", drawn_file()]
            options = replace(options, kept_bytes=MOST_BYTES, feed=is_second() or None)
            again = Command.own() if self.own_process and not is_second() else None
        recording = recording_words(self.words, self.module, self.mesh, flags)

        def told(runs: LaunchedRuns) -> int:
            verdict = verdict_on(self.subject, options, runs)
            return AGAIN if needs_drawn(runs, verdict) else self._reported(verdict)

        references = self.references or ""
        return ExitCode(run_launched(me, self.subject, options, self.mesh, references, recording, told, again))

    def _run_here(self) -> ExitCode:
        """On a process for each rank, started here."""
        mesh = require_processes(self.mesh, "there is nothing to compare it with")
        from shardwise.verifier.records.reference import reference_named
        from shardwise.verifier.run import verify_subject

        doing = ["starting"]
        with progress(lambda: doing[0], plain=self.form == "text"):
            verdict = verify_subject(
                self.subject,
                dict(mesh.axes),
                self._verify_options(),
                references=self.references or "",
                against=None if self.against is None else reference_named(self.against),
                stage=lambda text: doing.__setitem__(0, text),
            )
        return self._reported(verdict)

    def _reported(self, verdict: Verdict) -> ExitCode:
        """How the command ends, after it has reported ``verdict``."""
        chosen = self.configured
        if chosen.writes is not None and verdict.failure is None:
            click.echo(f"shardwise: {written(chosen, verdict.types)}", err=True)
        policy = replace(chosen.policy, baseline=chosen.writes or chosen.policy.baseline)
        types = policy.applied(verdict.types, strict=self.strict, local=self.local, judges_comments=False)
        verdict = replace(verdict, types=types)
        if self.html is not None:
            from shardwise.verifier.report_sections import numbers_section

            write_html(self.html, verdict.types, numbers=numbers_section(verdict))
        click.echo(self._rendered(verdict), color=True)
        code = verdict.exit_code
        return ExitCode.CLEAN if code is ExitCode.INCONCLUSIVE and self.allow_inconclusive else code

    def _rendered(self, verdict: Verdict) -> str:
        if self.form == "json":
            from shardwise.verifier.formats import to_json

            return to_json(verdict)
        from shardwise.verifier.text import render_verdict

        shown = screen(self.color)
        limits = EVERYTHING if self.everything else DEFAULT
        return render_verdict(verdict, color=shown.color, width=shown.width, limits=limits)
