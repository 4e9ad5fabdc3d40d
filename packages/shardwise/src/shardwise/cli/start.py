"""Where the process starts: Ctrl-C while the command is loading ends it as later, without a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Load the command and run it; the exit code is its own, 2 if it is interrupted before."""
    try:
        from .main import main as command
    except KeyboardInterrupt:
        sys.stderr.write("shardwise: interrupted before anything was checked\n")
        sys.exit(2)
    command()
