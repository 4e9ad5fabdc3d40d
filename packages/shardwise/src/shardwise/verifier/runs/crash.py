"""What is told of a run that did not come to its end? The rank that failed first, with its own frames; a hang with the
location where every rank waits.
"""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from collections.abc import Iterator, Sequence

from shardwise.diagnostics.error_text import in_one_line, location_of, own_traceback, syntax_location
from shardwise.host.blame import is_ours
from shardwise.host.no_run import NoProgram
from shardwise.worlds.failures import RankFailure, RankTimeout
from shardwise.worlds.waiting import told

from ..records.failure import Failure
from ..records.record import Crash, RankRun

BY_PEER = "by peer"
"""What gloo says of a connection that another rank has closed, or reset."""
LAST_WORDS = 8
"""Lines of its output that are told of a program that exits with a failure: they say why."""


@contextlib.contextmanager
def crash_caught(run: RankRun, printed: io.StringIO) -> Iterator[None]:
    """However the program ends inside the block, ``run`` knows; ``sys.exit(0)`` is an end like any other.

    ``printed``  what it has printed that nobody has seen.
    """
    try:
        yield
    except SystemExit as ending:
        if ending.code not in (None, 0):
            said = "\n".join(printed.getvalue().splitlines()[-LAST_WORDS:])
            run.crash = Crash(f"ended with sys.exit({ending.code!r})", location_of(ending), said, _now_s())
    except NoProgram:
        raise
    except BaseException as error:
        ours = is_ours(error)
        text = f"raised {in_one_line(error)}{' (a failure of shardwise itself)' if ours else ''}"
        trace = "".join(traceback.format_exception(error)) if ours else own_traceback(error)[0]
        run.crash = Crash(text, location_of(error), trace, _now_s())


def _now_s() -> float:
    return time.monotonic()


def crash_among(runs: Sequence[RankRun], where: str, world_size: int) -> Failure | None:
    """The first crash of any rank; None if there is none. Ranks without a run were still waiting when it was told."""
    crashed = [(run.crash.at_s, run.rank, run.crash) for run in runs if run.crash is not None]
    if not crashed:
        return None
    _, rank, crash = min(crashed, key=lambda one: one[:2])
    ended = [str(run.rank) for run in runs if run.crash is None]
    also = f"; rank {', '.join(ended)} came to the end of the program" if ended else ""
    waiting = [str(rank) for rank in range(world_size) if rank not in {run.rank for run in runs}]
    also += f"; rank {', '.join(waiting)} waited for the others" if waiting else ""
    who = f"rank {rank} of {world_size}" if world_size > 1 else "it"
    return Failure(where, f"{who} {crash.text}{also}", crash.location, crash.traceback, apart=BY_PEER in crash.text)


def lost(error: RankFailure | RankTimeout, where: str) -> Failure:
    """A process that died, or ranks that did not finish in time, or stood still."""
    head, _, details = str(error).partition("\n")
    if isinstance(error, RankTimeout) and error.standings:
        details = told(error.standings)
    elif error.__cause__ is not None:
        head += " (a failure of shardwise itself)"  # the program's own are caught on the rank
    apart = isinstance(error, RankTimeout) and len(error.standings) > 1
    return Failure(where, head, None, details.strip("\n"), apart=apart)


def unreadable(error: SyntaxError) -> Failure:
    """A script that does not parse."""
    return Failure("on one rank", in_one_line(error), syntax_location(error))
