"""`tracewise table`: the tables of a run as CSV or JSON lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

import click

from tracewise.cli.inputs import opened_run, path_arguments, run_options
from tracewise.read.json_text import to_json
from tracewise.tables.rows import Row, rows
from tracewise.tables.schema import SCHEMA_VERSION, TABLES, Table


@click.command()
@path_arguments
@click.option("--table", "name", type=click.Choice(list(TABLES)), default="events", show_default=True)
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), default="csv", show_default=True)
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to; standard output by default.")
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
    """Write one table of a run: a row a record, span, compilation, ..."""
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
