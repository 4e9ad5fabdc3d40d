"""`tracewise table`: the tables of a run as CSV, JSON lines or a folder of Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from tracewise.cli.inputs import chosen, opened_run, parse_ranks, path_arguments, run_options, tell_damage
from tracewise.model.runs import find_runs
from tracewise.read.archive import InputError
from tracewise.read.json_text import to_json
from tracewise.read.source import open_sources
from tracewise.tables.rows import Row, rows
from tracewise.tables.schema import SCHEMA_VERSION, TABLES, Table


@click.command()
@path_arguments
@click.option("--table", "name", type=click.Choice([*TABLES, "all"]), default="events", show_default=True)
@click.option("--format", "form", type=click.Choice(["csv", "jsonl", "parquet"]), default="csv", show_default=True)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    default="-",
    help="Where to; standard output by default. Parquet needs a new folder.",
)
@click.option("--columns", is_flag=True, help="Say what the columns mean, and stop.")
@run_options
def command(
    paths: tuple[str, ...],
    name: str,
    form: str,
    output: str,
    columns: bool,
    run_number: int | None,
    ranks: str | None,
) -> None:
    """Write one table of a run: a row a record, span, compilation, ... As Parquet also all tables, and all runs."""
    if form == "parquet" and not columns:
        write_parquet_folder(paths, name, output, run_number, ranks)
        return
    if name == "all":
        raise click.UsageError("--table all needs --format parquet: a file of text holds one table")
    table = TABLES[name]
    if columns:
        click.echo(f"{name}, schema version {SCHEMA_VERSION}: {table.meaning}")
        for column in table.columns:
            click.echo(f"  {column.name:18} {column.type:8} {column.meaning}")
        return
    with (
        opened_run(paths, run_number, ranks) as run,
        click.open_file(output, "w", encoding="utf-8", errors="replace") as file,
    ):
        WRITERS[form](file, table, rows(run, name))
        if output != "-":
            click.echo(f"{name} of {run.folder} written to {output}", err=True)


def write_parquet_folder(paths: tuple[str, ...], name: str, output: str, number: int | None, ranks: str | None) -> None:
    """All runs, unless one is named; each log is read in a process of its own."""
    if output == "-":
        raise click.UsageError("--format parquet needs -o FOLDER")
    try:
        from tracewise.store.load import logs_of, read_batches
        from tracewise.store.parquet import write_parquet
    except ImportError as error:
        raise InputError(f"Parquet needs {error.name}; install it with: pip install 'tracewise[explore]'") from None
    wanted = parse_ranks(ranks) if ranks else None
    with open_sources(paths) as sources:
        found = find_runs(sources)
        logs = [
            log
            for log in logs_of(found)
            if (number is None or log.run == chosen(found, number))
            and (wanted is None or log.span.rank is None or log.span.rank in wanted)
        ]
        if not logs:
            raise InputError(f"--ranks {ranks}: no log of these ranks")
        names = list(TABLES) if name == "all" else [name]
        rows_of = write_parquet(Path(output), read_batches(logs, sources.health, names), names)
        tell_damage(sources.health)
    click.echo(f"{', '.join(f'{count:,} {table}' for table, count in rows_of.items())} written to {output}", err=True)


def write_csv(file: IO[str], table: Table, lines: Iterator[Row]) -> None:
    """A header and a line a row."""
    writer = csv.writer(file)
    writer.writerow(table.names)
    writer.writerows(lines)


def write_jsonl(file: IO[str], table: Table, lines: Iterator[Row]) -> None:
    """An object a row; the values of JSON columns stay text."""
    names = table.names
    for row in lines:
        file.write(to_json(dict(zip(names, row, strict=True))).decode() + "\n")


WRITERS = {"csv": write_csv, "jsonl": write_jsonl}
