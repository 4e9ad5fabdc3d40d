"""`tracewise doctor`: what is in a folder, what is missing, and which variable to set to get it."""

from __future__ import annotations

import getpass
import importlib.util
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tracewise import __version__
from tracewise.cli.main import DONE, FOUND
from tracewise.find.inventory import find_parts, missing_ranks
from tracewise.model.runs import find_runs, load_run
from tracewise.ranks.wording import ranks_text
from tracewise.read.archive import InputError
from tracewise.read.flight import read_flight
from tracewise.read.json_text import to_json
from tracewise.read.source import Sources, open_sources

KINDS = {
    "trace": "trace logs (TORCH_TRACE)",
    "flight": "flight-recorder dumps (TORCH_FR_BUFFER_SIZE)",
    "profiler": "profiler traces (torch.profiler)",
    "plan": "expected schedules (shardwise check --schedule)",
    "other": "other files, which are not read",
}
VARIABLES = (
    "TORCH_TRACE", "TORCH_DTRACE", "TORCH_COMPILE_DEBUG", "INDUCTOR_PROVENANCE", "LOG_TLPARSE", "TORCH_FR_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE",
)  # fmt: skip
EXTRAS = {"duckdb": "tracewise explore", "pyarrow": "tracewise table --format parquet", "zstandard": "files in zstd"}


@click.command()
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(path: str | None, as_json: bool) -> int:
    """Say what a folder of traces has and lacks. Without PATH: look where torch leaves traces.

    Exit status: 0 there are traces and all was understood, 1 not all was, 2 there is nothing to read.
    """
    folders = [path] if path is not None else usual_folders()
    if not folders:
        for line in surroundings():
            click.echo(line)
        raise InputError(
            "no folder of traces where torch leaves them; run the program with: tracewise record -- COMMAND"
        )
    found = [inventory(folder) for folder in folders]
    if as_json:
        click.echo(to_json({"format": 1, "version": __version__, "folders": found}))
    else:
        for line in [*surroundings(), *(line for one in found for line in folder_lines(one))]:
            click.echo(line)
    return DONE if all(one["understood"] for one in found) else FOUND


def usual_folders() -> list[str]:
    """The folders in which torch may have left traces for this user."""
    candidates = [os.environ.get("TORCH_TRACE", ""), os.environ.get("TORCH_DTRACE", ""), "torch_compile_debug/tlparse"]
    candidates.append(str(Path(tempfile.gettempdir()) / f"export_{getpass.getuser()}"))
    return [folder for folder in dict.fromkeys(candidates) if folder and Path(folder).is_dir()]


def surroundings() -> Iterator[str]:
    """What is set and installed here."""
    yield f"tracewise {__version__}"
    for name in VARIABLES:
        if name in os.environ:
            yield f"{name}={os.environ[name]}"
    for module, use in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield f"{module} is not installed: {use} needs it"


def inventory(folder: str) -> dict[str, Any]:
    """What a folder has. InputError if it does not exist."""
    with open_sources([folder]) as sources:
        kinds = Counter(file.kind for file in sources.files)
        found: dict[str, Any] = {"folder": folder, "files": dict(kinds), "runs": [], "advice": []}
        damage: Counter[str] = Counter(sources.health.damage)
        if kinds["trace"]:
            runs = find_runs(sources)
            run = load_run(runs[-1], len(runs) - 1)
            damage.update(run.health.damage)
            numbers = {rank.number for rank in run.ranks if rank.number is not None}
            found["runs"] = [[Path(span.source.name).name for span in spans] for spans in runs]
            found["newest"] = {
                "torch": run.torch_version,
                "ranks": sorted(numbers),
                "missing_ranks": missing_ranks(numbers),
                "compilations": len(run.compilations),
                "parts": {part.name: part.is_there for part in find_parts(run)},
            }
            found["advice"] += [
                f"no {part.name} ({part.answers}): set {part.setting}" for part in find_parts(run) if not part.is_there
            ]
        found["advice"] += _flight_advice(sources, found)
        found["understood"] = bool(kinds - Counter({"other": kinds["other"]})) and not damage
        found["damage"] = dict(damage)
    return found


def _flight_advice(sources: Sources, found: dict[str, Any]) -> Iterator[str]:
    dumps = [read_flight(source) for source in sources.of_kind("flight")]
    if dumps:
        ranks = {dump.rank for dump in dumps}
        found["flight"] = {"ranks": sorted(ranks), "stacks": any(dump.has_stacks for dump in dumps)}
        if lost := missing_ranks(ranks):
            yield f"no flight-recorder dump of {ranks_text(lost)}: these processes died before they could write it"
        if not found["flight"]["stacks"]:
            yield "no stacks in the dumps (your line of each collective): keep the pickles beside the JSON"
    elif len((found.get("newest") or {}).get("ranks", ())) > 1:
        yield "no flight-recorder dumps (where ranks part ways): set TORCH_FR_BUFFER_SIZE=2000"


def folder_lines(found: dict[str, Any]) -> Iterator[str]:
    """One folder as text."""
    yield ""
    yield f"{found['folder']}:"
    for kind, words in KINDS.items():
        if found["files"].get(kind):
            yield f"  {found['files'][kind]} {words}"
    if not found["files"]:
        yield "  nothing"
    newest = found.get("newest")
    if newest:
        runs = len(found["runs"])
        yield (
            f"  {runs} {'run' if runs == 1 else 'runs'}; the newest: torch {newest['torch'] or 'of unknown version'}, "
            f"{newest['compilations']} compilations" + (f", {ranks_text(newest['ranks'])}" if newest["ranks"] else "")
        )
        if newest["missing_ranks"]:
            yield f"  no log of {ranks_text(newest['missing_ranks'])}"
    for name, count in found["damage"].items():
        yield f"  not understood: {name.replace('_', ' ')}, {count} times"
    yield from (f"  {text}" for text in found["advice"])
