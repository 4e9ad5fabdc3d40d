"""Which commands are there, and what does the process exit with? ``shardwise`` and ``python -m shardwise`` start here.

Commands are loaded when they are called for and torch only by those that run a program, so ``--help``, ``--version``
and ``explain`` answer at once. Exit codes: 0 clean, 1 findings, 2 everything else, our own failure included.
"""

from __future__ import annotations

import difflib
import importlib
import os
import shlex
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from shardwise import __version__
from shardwise.diagnostics.error_text import shortened
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.printing.printable import clean
from shardwise.diagnostics.result import ExitCode
from shardwise.host.launcher import is_launched
from shardwise.host.no_run import NoProgram

from .options.command_list import ADDED_BY, COMMANDS, INSTEAD, LISTED, SECTIONS
from .runs import guard
from .runs.streams import is_no_room, is_no_temporary_folder, open_closed_streams

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # reads mail headers, which takes longer to load than we do

    return entry_points(group="shardwise.commands")


def _added(name: str) -> click.Command | None:
    for entry in _entry_points().select(name=name):
        command: click.Command = entry.load()
        return command
    if name in ADDED_BY:
        raise click.UsageError(f"{name} is a command of the package {ADDED_BY[name]}, which is not installed here")
    return None


def _summary(name: str) -> str:
    package = ADDED_BY.get(name)
    if package is None or name in _entry_points().names:
        return LISTED[name].summary
    return f"{LISTED[name].summary} (pip install {package})"


EPILOG = """\b
First steps, with a script as it is:
  shardwise check train.py                               what do wrappers and samplers promise?
  shardwise check train.py --mesh dp=2,tp=2 --ranks all  do ranks match, or would they hang?
  shardwise verify train.py --mesh dp=2                  are the numbers those of one rank?
"""


class FrontDoor(click.Group):
    """A group whose commands are imported on first use and whose failures exit with 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_entry_points().names})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, then the options, of which there are two."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command in one line, by what it is for; none is loaded for it."""
        others = [name for name in self.list_commands(ctx) if name not in LISTED]
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, _summary(name)) for name in commands])
        if others:
            with formatter.section("From other packages"):
                formatter.write_dl([(name, f"shardwise {name} --help") for name in others])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = COMMANDS.get(cmd_name)
        return _added(cmd_name) if home is None else getattr(importlib.import_module(home), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called for. What is none is told which comes nearest, and a script, how it is checked."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        if name.endswith(".py") or os.path.exists(name):
            raise click.UsageError(
                f"{name} is no command; to check it: {ctx.command_path} check {shlex.join(args)}", ctx
            )
        if name in INSTEAD:
            raise click.UsageError(f"no such command {name!r}: {ctx.command_path} {INSTEAD[name]}", ctx)
        known = [*self.list_commands(ctx), *ADDED_BY]
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise click.UsageError(f"no such command {name!r}{f'; did you mean {close[0]}?' if close else ''}", ctx)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and exit. No failure may look like a verdict: 1 is for findings only."""
        started = guard.OWN_PROCESS if not args and "args" not in options else None
        if started is not None:
            open_closed_streams()
        out = sys.stdout
        try:
            _require_folder()
            if started is not None and not is_launched():  # a launcher does not wait for what its ranks clear up
                guard.ends_by_request()
            code = super().main(*args, **{**options, "standalone_mode": False, "obj": started})
        except click.ClickException as error:
            _complain(error)
            code = ExitCode.BROKEN
        except (NoProgram, SpmdValueError) as error:
            _complain(click.UsageError(str(error)))
            code = ExitCode.BROKEN
        except (click.Abort, KeyboardInterrupt):
            click.echo("shardwise: interrupted before anything was checked", err=True)
            code = ExitCode.BROKEN
        except SystemExit as ended:
            # When nobody reads any more, click puts another stream there and ends with 1, which is for findings.
            code = ended.code if sys.stdout is out else ExitCode.BROKEN
        except Exception as error:
            if is_no_room(error):
                click.echo(f"shardwise: output cannot be written ({error.strerror}), so there is no report", err=True)
            elif is_no_temporary_folder(error):
                click.echo(
                    f"shardwise: there is no room for temporary files ({error.strerror}): say in TMPDIR where there is",
                    err=True,
                )
            else:
                traceback.print_exc()
                click.echo("shardwise: this is a failure of shardwise itself, not of the program", err=True)
                if guard.failed():
                    sys.exit(ExitCode.BROKEN)
            code = ExitCode.BROKEN
        guard.end(code if isinstance(code, int) else 0 if code is None else 1)
        sys.exit(code)


def _require_folder() -> None:
    try:
        os.getcwd()
    except OSError:
        raise click.ClickException("the current folder is gone: change into another, or into its place again") from None


def _complain(error: click.ClickException) -> None:
    """Show it: what was given may be of any length, and have escape sequences in it."""
    text = "\n".join(shortened(clean(line)) for line in error.format_message().split("\n"))
    context = getattr(error, "ctx", None)
    if context is not None and error.format_message() == context.get_help():  # nothing was asked for
        click.echo(text, err=True)
        return
    shown = click.UsageError(text, context) if isinstance(error, click.UsageError) else click.ClickException(text)
    shown.show()


@click.group(
    cls=FrontDoor, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, message="shardwise %(version)s")
def main() -> None:
    """Check distributed PyTorch programs before they run.

    Exit codes: 0 clean, 1 findings, 2 no verdict (wrong usage, the program crashed, or nothing was checked), 3
    inconclusive (nothing was judged that depends on parameters, or of what is exchanged over some axis).
    """
