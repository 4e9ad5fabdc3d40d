"""`tracewise tlparse`: the options of tlparse, the report of tracewise, and the files that scripts read."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import click

from tracewise.cli.inputs import progress_of
from tracewise.cli.main import DONE, FOUND
from tracewise.compat.tlparse import Layout, failures_page, listing, runtime_trace, stats
from tracewise.find.answers import find_answers
from tracewise.model.entities import Rank, Run
from tracewise.model.payloads import Payloads
from tracewise.model.runs import find_runs, load_run
from tracewise.ranks.parity import find_parity
from tracewise.read.archive import InputError
from tracewise.read.grammar import parse_json
from tracewise.read.health import Health
from tracewise.read.json_text import to_json
from tracewise.read.log import LogReader
from tracewise.read.source import open_sources
from tracewise.report.folder import OutputFolder, check_target
from tracewise.report.writer import write_report

PARITY = "Difference of # of collectives in scheduler and inductor output code and missing wait collectives"


@click.command()
@click.argument("path")
@click.option("--latest", is_flag=True, help="PATH is a folder: its newest log.")
@click.option("-o", "output", metavar="OUT", default="tl_out", show_default=True, help="Folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if tracewise wrote it.")
@click.option("--strict", is_flag=True, help="End with status 1 if a line was not understood.")
@click.option("--strict-compile-id", is_flag=True, help="End with status 1 if a record lacks its compile id.")
@click.option("--no-browser", is_flag=True, help="Do not open the report.")
@click.option("--custom-header-html", metavar="H", default="", help="Not used: the pages take no foreign HTML.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is written.")
@click.option("-p", "--plain-text", is_flag=True, help="Output code as text, not as a page.")
@click.option("-e", "--export", "export", is_flag=True, help="Write exported programs and guards as files too.")
@click.option("-i", "--inductor-provenance", is_flag=True, help="Accepted; the report always has provenance.")
@click.option("--all-ranks-html", "all_ranks", is_flag=True, help="PATH is a folder: all ranks, a folder each.")
@click.option("--raw", is_flag=True, help="Copy the logs to raw.log.")
def command(
    path: str,
    latest: bool,
    output: str,
    overwrite: bool,
    strict: bool,
    strict_compile_id: bool,
    no_browser: bool,
    custom_header_html: str,
    verbose: bool,
    plain_text: bool,
    export: bool,
    inductor_provenance: bool,
    all_ranks: bool,
    raw: bool,
) -> int:
    """Take tlparse's options and write its files beside the report of tracewise."""
    target = Path(output)
    check_target(target, overwrite)
    if custom_header_html:
        click.echo("tracewise: --custom-header-html is not used: the pages take no foreign HTML", err=True)
    layouts: list[Layout] = []
    with open_sources([newest_log(path) if latest else path]) as sources:
        found = find_runs(sources)[-1]
        if len(found) > 1 and not all_ranks:
            raise InputError(f"{path}: {len(found)} logs; give one of them, --latest or --all-ranks-html")
        run = load_run(found, 0, sources.health, progress_of(sys.stderr, "MB read", 1e6))

        def also(folder: OutputFolder) -> None:
            write_files(run, folder, layouts, all_ranks=all_ranks, plain=plain_text, export=export, raw=raw)

        write_report(find_answers(run), target, overwrite=overwrite, also=also)
    counts = stats(run.health)
    click.echo("Stats { " + ", ".join(f"{k}: {v}" for k, v in counts.items() if v or k == "ok") + " }", err=True)
    if verbose:
        click.echo(f"{target}: {sum(len(a) for layout in layouts for a in layout.directory.values())} files", err=True)
    if not no_browser:
        webbrowser.open((target / "index.html").absolute().as_uri())
    without_id = sum(layout.without_id for layout in layouts)
    is_bad = strict and any(count for name, count in counts.items() if name not in ("ok", "other_rank"))
    return FOUND if is_bad or (strict_compile_id and without_id) else DONE


def newest_log(path: str) -> str:
    """The log of a folder that was written last. InputError if there is none."""
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"--latest {path}: not a folder; give the folder of TORCH_TRACE")
    logs = [file for file in folder.iterdir() if file.is_file() and not file.is_symlink()]
    if not logs:
        raise InputError(f"--latest {path}: no log in this folder")
    return str(max(logs, key=lambda file: file.stat().st_mtime))


def write_files(
    run: Run,
    folder: OutputFolder,
    layouts: list[Layout],
    *,
    all_ranks: bool,
    plain: bool,
    export: bool,
    raw: bool,
) -> None:
    """The files of the run's only log, or those of each rank and of all together."""
    if not all_ranks:
        layout = Layout(folder, "", plain=plain, export=export)
        layouts.append(layout)
        logs = [Path(file.path) for file in run.files]
        layout.write(logs)
        folder.write("failures_and_restarts.html", failures_page(run))
        if raw:
            _copy_logs(folder, "raw.log", logs)
        return
    ranks = [(rank, rank.number) for rank in run.ranks if rank.number is not None]
    if not ranks:
        raise InputError("--all-ranks-html: no log tells a rank; the names end in _rank_<N>_<random>.log")
    schedules, runtimes = [], {}
    parities = _parities(run)
    for rank, number in ranks:
        prefix = f"rank_{number}/"
        layout = Layout(folder, prefix, plain=plain, export=export)
        layouts.append(layout)
        logs = _logs_of(run, rank)
        layout.write(logs)
        folder.write(f"{prefix}index.html", listing(layout, number))
        folder.write(f"{prefix}failures_and_restarts.html", failures_page(run, number))
        graphs = parities.get(number, [])
        folder.write(f"{prefix}collectives_parity.json", to_json({"description": PARITY, "graphs": graphs}))
        if raw:
            _copy_logs(folder, f"{prefix}raw.log", logs)
        schedules += [{"rank": number, **schedule} for schedule in layout.schedules]
        if layout.runtimes:
            runtimes[number] = layout.runtimes
    folder.write_parts("chromium_events.json", _events_of_all(run))
    if schedules:
        folder.write("collective_schedules.json", to_json(schedules))
    if runtimes:
        estimations = [{"rank": number, **graph} for number, graphs in runtimes.items() for graph in graphs]
        folder.write("runtime_estimations.json", to_json(estimations))
        folder.write("chromium_trace_with_runtime.json", to_json(runtime_trace(runtimes)))


def _logs_of(run: Run, rank: Rank) -> list[Path]:
    return [Path(run.files[number].path) for number in rank.files]


def _parities(run: Run) -> dict[int, list[dict[str, object]]]:
    """By rank, the graphs whose code does not issue what was scheduled, or does not wait for it."""
    found: dict[int, list[dict[str, object]]] = {}
    with Payloads(run) as payloads:
        for parity in find_parity(run, payloads):
            if parity.unit.rank is not None and (parity.offset or parity.missing_waits):
                entry = {
                    "graph": parity.unit.id.folder,
                    "compile_id": str(parity.unit.id),
                    "offset": parity.offset,
                    "missing_waits": parity.missing_waits,
                }
                found.setdefault(parity.unit.rank, []).append(entry)
    return found


def _events_of_all(run: Run) -> Iterator[bytes]:
    """The timeline of all ranks, with the rank as the process."""
    first = True
    yield b"[\n"
    for rank in run.ranks:
        for log in _logs_of(run, rank) if rank.number is not None else ():
            for record in LogReader(log, Health()):
                if record.kind != "chromium_event" or not record.payload:
                    continue
                try:
                    event = parse_json(record.payload)[0]
                except ValueError:
                    continue
                if isinstance(event, dict):
                    yield (b"" if first else b",\n") + to_json(event | {"pid": rank.number})
                    first = False
    yield b"\n]\n"


def _copy_logs(folder: OutputFolder, name: str, logs: list[Path]) -> None:
    def blocks() -> Iterator[bytes]:
        for log in logs:
            with log.open("rb") as file:
                yield from iter(lambda: file.read(1 << 20), b"")

    folder.write_parts(name, blocks())
