"""`tracewise`: finds commands by the modules in ``cli/commands``, runs the one asked for, ends with its status.

Exit status: 0 done, 1 the condition that was asked for (a problem, a difference), 2 usage or unreadable input, 130
interrupted.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence

import click

from tracewise import __version__
from tracewise.cli import commands

DONE, FOUND, UNUSABLE, INTERRUPTED = 0, 1, 2, 130


class CommandFolder(click.Group):
    """A group whose commands are modules, imported when they are needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(module.name.rstrip("_") for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        module = importlib.import_module(f"tracewise.cli.commands.{name}")
        command = module.command
        assert isinstance(command, click.Command), f"{module.__name__}.command is the command {name}"
        return command


@click.command(cls=CommandFolder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tracewise", message="%(prog)s %(version)s")
def tracewise() -> None:
    """What happened in a run, from the traces that PyTorch leaves behind."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process."""
    try:
        status = tracewise.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.exceptions.Abort:
        status = INTERRUPTED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except click.ClickException as error:
        error.show()
        status = UNUSABLE
    except BrokenPipeError:
        # Who reads us has enough, as in `tracewise show LOG | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = DONE
    except Exception as error:
        status = _status_of(error)
    sys.exit(status if isinstance(status, int) else DONE)


def _status_of(error: Exception) -> int:
    """Says what input was at fault. Errors of our own keep their traceback: they are to be reported."""
    from tracewise.read.archive import InputError

    if not isinstance(error, InputError | OSError):
        raise error
    click.echo(f"tracewise: {error}", err=True)
    return UNUSABLE
