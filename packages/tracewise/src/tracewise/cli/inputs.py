"""PATH arguments and the options that choose a run, shared by the commands that read trace logs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from tracewise.model.entities import Run
from tracewise.model.runs import FileSpan, find_runs, load_run
from tracewise.read.archive import InputError
from tracewise.read.health import Health
from tracewise.read.redact import redact
from tracewise.read.source import Sources, open_sources

F = TypeVar("F", bound=Callable[..., Any])
PROGRESS_S = 0.1


def path_arguments(function: F) -> F:
    """PATH... of logs, folders, globs and archives."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(function)


def run_options(function: F) -> F:
    """``--run`` and ``--ranks``."""
    function = click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,3-7.")(function)
    return click.option(
        "--run", "run_number", type=int, metavar="N", help="This run of several; the newest is default."
    )(function)


@contextmanager
def opened_run(paths: tuple[str, ...], run_number: int | None = None, ranks: str | None = None) -> Iterator[Run]:
    """The chosen run, read. Its payloads can be read until the context is left."""
    runs = opened_runs(paths, run_number, ranks)
    with closing(runs):
        yield next(runs)


def opened_runs(
    paths: tuple[str, ...],
    run_number: int | None = None,
    ranks: str | None = None,
    *,
    is_all: bool = False,
    is_redacted: bool = False,
) -> Generator[Run, None, None]:
    """The chosen run, or each; the payloads of one can be read until the next is asked for."""
    with open_sources(paths) as sources:
        if is_redacted:
            _redact(sources)
        found = find_runs(sources)
        wanted = parse_ranks(ranks) if ranks else None
        for number in range(len(found)) if is_all else [chosen(found, run_number)]:
            spans = [s for s in found[number] if wanted is None or s.rank is None or s.rank in wanted]
            if not spans:
                raise InputError(f"--ranks {ranks}: no log of these ranks; there are {_ranks_of(found[number])}")
            run = load_run(spans, number, sources.health, progress_of(sys.stderr, "MB read", 1e6))
            if wanted is not None:
                run.ranks = [rank for rank in run.ranks if rank.number is None or rank.number in wanted]
            yield run


def _redact(sources: Sources) -> None:
    """Puts redacted copies in the place of the logs, and tells what was replaced."""
    counts: Counter[str] = Counter()
    folder = sources.scratch / "redacted"
    folder.mkdir()
    for number, file in enumerate(sources.files):
        if file.kind == "trace":
            copy = folder / f"{number}.log"
            counts += redact(file.path, copy)
            name = Path(file.name).name
            sources.files[number] = replace(file, path=copy, name=name, folder="redacted", size=copy.stat().st_size)
    told = ", ".join(f"{name} {count} times" for name, count in counts.most_common()) or "nothing"
    click.echo(f"tracewise: redacted {told}", err=True)


def chosen(found: list[list[FileSpan]], number: int | None) -> int:
    """The index of the wanted run; the newest by default, told on stderr if there are several."""
    if number is None:
        if len(found) > 1:
            click.echo(
                f"tracewise: {len(found)} runs found; this is the newest, see --run 0 to {len(found) - 1}", err=True
            )
        return len(found) - 1
    if not 0 <= number < len(found):
        raise InputError(f"--run {number}: there are runs 0 to {len(found) - 1}, 0 is the oldest")
    return number


def parse_ranks(text: str) -> set[int]:
    """The numbers that a list such as ``0,3-7`` stands for."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or len(part) > 14:
            raise InputError(f"--ranks {text}: {part!r} is no rank; write numbers and ranges such as 0,3-7")
        if int(last or first) - int(first) > 1_000_000:
            raise InputError(f"--ranks {text}: more than a million ranks; write fewer")
        ranks.update(range(int(first), int(last or first) + 1))
    return ranks


def progress_of(stream: Any, what: str, unit: float = 1.0) -> Callable[[int, int], None] | None:
    """Tells how much is done, at most ten times a second and only to a terminal."""
    if not stream.isatty():
        return None
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > PROGRESS_S:
            last = now
            stream.write(f"\r{done / max(total, 1):4.0%} of {total / unit:.0f} {what}\033[K")
            stream.flush()
        if done >= total:
            stream.write("\r\033[K")

    return tell


def tell_damage(health: Health) -> None:
    """Says on stderr what of the input could not be understood; nothing if all could."""
    if health.damage:
        told = ", ".join(f"{count:,} {reason}" for reason, count in sorted(health.damage.items()))
        click.echo(f"tracewise: not all could be understood: {told}", err=True)


def _ranks_of(spans: list[FileSpan]) -> str:
    return ", ".join(sorted("none" if s.rank is None else str(s.rank) for s in spans))
