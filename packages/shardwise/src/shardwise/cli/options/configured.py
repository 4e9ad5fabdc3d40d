"""Commands whose defaults are those of ``[tool.shardwise]``: where it is looked for, and what stands above it.

The command line stands above the file. Of two options that exclude each other, one of the command line leaves out the
one of the file. Options that the command does not have belong to the script, and the error says how they are given.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shardwise.configuration.baseline import write_baseline
from shardwise.configuration.policy import Policy
from shardwise.configuration.reading import first_settings, project_files, read_settings
from shardwise.configuration.selection import Selection, selection
from shardwise.configuration.settings import Settings
from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import RunResult
from shardwise.host.launcher import launched_rank

from .output_file import JSON, require_writable
from .sections import SectionedCommand

_KEY = "shardwise.configured"
_POLICY = ("select", "ignore", "config", "no_config", "baseline", "write_baseline")
_EXCLUDED_BY = {"mesh": ("world_size",), "world_size": ("mesh",), "rank": ("ranks",), "references": (), "record": ()}


@dataclass(frozen=True)
class Configured:
    """What holds for one call of a command.

    ``settings``  those of the file. ``policy``: they and the command line, as to what is reported.
    ``writes``    the baseline that is to be written; None if none is.
    ``files``     on what all this rests, or would if it were there.
    ``words``     the options of the command line that make the policy, for a call like this one.
    """

    settings: Settings
    policy: Policy
    writes: Path | None
    words: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def said_by(self, option: str) -> str:
        """What has said the value of an option: ``--ranks``, or the file with its key."""
        context = click.get_current_context(silent=True)
        if context is None or context.get_parameter_source(option) is not ParameterSource.DEFAULT_MAP:
            return f"--{option}"
        return f"{self.settings.file}: {option}"


def configured(context: click.Context) -> Configured:
    """What holds for this call."""
    found: Configured = context.meta[_KEY]
    return found


def written(chosen: Configured, result: RunResult) -> str:
    """Write the baseline of a run; what is to be said of that. What comments and codes hold back is not in it."""
    assert chosen.writes is not None
    left = chosen.policy.applied(result, judges_comments=False)
    found = [place for finding in left.findings for place in finding.places]
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    count = write_baseline(chosen.writes, errors)
    return f"{counted(count, 'finding')} written into {chosen.writes} as known"


class CodesParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``--select`` and ``--ignore``."""

    name = "codes"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Selection:
        try:
            return selection([value])
        except ValueError as error:
            self.fail(str(error), param, ctx)


def policy_options(command: Callable[..., object]) -> Callable[..., object]:
    """The options of ``Configured``; the command does not take them, but asks ``configured``."""
    for option in (
        click.option("--no-config", is_flag=True, help="Read no [tool.shardwise] from a pyproject.toml."),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Read [tool.shardwise] from FILE (default: the nearest pyproject.toml that has it, from the script's "
            "folder upwards).",
        ),
        click.option(
            "--write-baseline", is_flag=True, help="Write everything that is found into the baseline, as known."
        ),
        click.option(
            "--baseline",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Hold back the findings that FILE knows: only what is new fails.",
        ),
        click.option(
            "--ignore", type=CodesParam(), multiple=True, metavar="CODES", help="Do not report these codes: SW113,SW3."
        ),
        click.option(
            "--select",
            type=CodesParam(),
            multiple=True,
            metavar="CODES",
            help="Report these codes only: numbers, beginnings of numbers or names, with commas between: SW1,SW608.",
        ),
    ):
        command = option(command)
    return command


class ConfiguredCommand(SectionedCommand):
    """A command with ``policy_options`` whose other options have their defaults from ``[tool.shardwise]``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = self._given(ctx, args)
        if ctx.resilient_parsing or "help" in given:
            return super().parse_args(ctx, args)
        files = self._files(given)
        settings = self._settings(given, files)
        ctx.default_map = {**_defaults(settings, given), **(ctx.default_map or {})}
        rest = super().parse_args(ctx, args)
        ctx.meta[_KEY] = _configured(settings, files, {name: ctx.params.pop(name) for name in _POLICY})
        if not ctx.params["words"] and not ctx.params["module"]:
            ctx.params.update(_program(settings))
        return rest

    def _given(self, ctx: click.Context, args: Sequence[str]) -> dict[str, object]:
        """What stands in the command line, not yet converted."""
        try:
            return dict(self.make_parser(ctx).parse_args(list(args))[0])
        except click.NoSuchOption as error:
            raise _foreign(error, ctx, args) from None

    @staticmethod
    def _files(given: dict[str, Any]) -> tuple[Path, ...]:
        """Where the settings stand: the first of these that has some."""
        if given.get("no_config"):
            if given.get("config"):
                raise click.UsageError("--config names a file and --no-config wants none: leave one of them out")
            return ()
        if given.get("config"):
            return (Path(given["config"]),)
        words = given["words"] if isinstance(given.get("words"), tuple) else ()  # what click has for none varies
        script = Path(str(words[0]).partition(":")[0]) if words and not given.get("module") else Path.cwd()
        return project_files(script if os.path.isdir(script) else script.parent)

    @staticmethod
    def _settings(given: dict[str, object], files: Sequence[Path]) -> Settings:
        if given.get("config"):
            return read_settings(files[0]) if files[0].is_file() else Settings()  # click says that there is none
        return first_settings(files)


def _defaults(settings: Settings, given: dict[str, object]) -> dict[str, object]:
    """The values of the file, under the names of parameters; only those that the command line leaves open."""
    values = {
        "mesh": None if settings.mesh is None else str(settings.mesh),
        "world_size": settings.world_size,
        "ranks": settings.ranks,
        "strict": settings.strict,
        "local": settings.local,
        "partials": settings.partials,
        "observe": settings.observe,
    }
    left_out = {name for one in given for name in _EXCLUDED_BY.get(one, ()) if given[one] is not None}
    if launched_rank() is not None:
        left_out |= {"mesh", "world_size", "ranks"}  # the launcher has decided
    return {name: value for name, value in values.items() if value is not None and name not in left_out}


def _program(settings: Settings) -> dict[str, object]:
    """The parameters for the script or module of the file, as seen from here; none if it names none."""
    first, *others = settings.script or ("",)
    if not first:
        return {}
    if first == "-m":
        return {"module": others[0], "words": tuple(others[1:])} if others else {}
    return {"words": (os.path.relpath(settings.folder / first), *others)}


def _configured(settings: Settings, files: Sequence[Path], params: dict[str, Any]) -> Configured:
    def together(chosen: Sequence[Selection]) -> Selection:
        whole = Selection()
        for one in chosen:
            whole |= one
        return whole

    select, ignore = together(params["select"]), together(params["ignore"])
    baseline: Path | None = params["baseline"] or settings.baseline
    if params["write_baseline"] and baseline is None:
        raise click.UsageError(
            '--write-baseline does not know where to: add --baseline FILE, or baseline = "FILE" to [tool.shardwise] '
            "in pyproject.toml"
        )
    if params["write_baseline"]:
        require_writable("--baseline", baseline, JSON)
    words = [
        *(["--select", ",".join(select.words)] if select else ()),
        *(["--ignore", ",".join(ignore.words)] if ignore else ()),
    ]
    words += [
        *(["--config", str(params["config"])] if params["config"] else ()),
        *(["--no-config"] if params["no_config"] else ()),
    ]
    words += ["--baseline", str(params["baseline"])] if params["baseline"] else []
    read = None if params["write_baseline"] else baseline
    policy = Policy(settings, select, ignore, read)
    writes = baseline if params["write_baseline"] else None
    return Configured(settings, policy, writes, tuple(words), (*files, *([read] if read is not None else ())))


def _foreign(error: click.NoSuchOption, ctx: click.Context, args: Sequence[str]) -> click.UsageError:
    """An option that is not the command's: a slip of the pen, or meant for the script."""
    option = error.option_name
    if "--" in args or not any(not word.startswith("-") for word in args):
        return error
    ours, others = _ours(ctx, args)
    said = f"{ctx.command_path} has no option {option}"
    names = [name for one in ctx.command.get_params(ctx) for name in (*one.opts, *one.secondary_opts)]
    close = difflib.get_close_matches(option, names, n=1, cutoff=0.75)
    if close:
        return click.UsageError(f"{said}; did you mean {close[0]}?", ctx)
    written = f"{ctx.command_path} {shlex.join(ours)} -- {shlex.join(others)}"
    return click.UsageError(f"{said}\nOptions of the script go after --: {written}", ctx)


def _ours(ctx: click.Context, args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that are the command's, the script among them, and those that must be the script's."""
    takes_value = {
        name: not (isinstance(option, click.Option) and option.is_flag)
        for option in ctx.command.get_params(ctx)
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("-")
    }
    ours: list[str] = []
    others: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in takes_value:
            ours.append(word)
            if takes_value[name] and not equals:
                ours += [next(words, "")]
        elif word.startswith("-") or others:
            others.append(word)
        else:
            ours.append(word)
    return ours, others
