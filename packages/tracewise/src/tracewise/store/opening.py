"""What the paths of the command line hold, as tables of one database: trace logs, and files of events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tracewise.model.runs import group_runs
from tracewise.read.archive import InputError
from tracewise.read.source import SourceFile, Sources
from tracewise.store.database import Database
from tracewise.store.files import Format, UnreadableTable, add_files, format_of, table_name
from tracewise.store.load import logs_of
from tracewise.store.traces import TraceTables


def fill(database: Database, sources: Sources, processes: int | None = None) -> TraceTables | None:
    """Make tables of all sources; returns those of the trace logs, if there are any.

    InputError if nothing can be read, or a file of events is damaged.
    """
    traces = None
    if logs := sources.of_kind("trace"):
        traces = TraceTables(database, logs_of(group_runs(logs)), processes)
        traces.load()
    unknown = []
    for group in file_groups([file for file in sources.files if file.kind in ("other", "plan")]):
        if group.kind is None:
            unknown.append(group.name)
            continue
        try:
            add_files(database, group.name, group.kind, group.paths)
        except UnreadableTable as error:
            raise InputError(str(error)) from error
    if not database.tables:
        found = f"; {', '.join(unknown[:3])} holds neither" if unknown else ""
        raise InputError(
            f"nothing to explore among {len(sources.files)} files: expected trace logs (a folder that TORCH_TRACE "
            f"named), Parquet, CSV, JSON lines, SQLite or DuckDB{found}"
        )
    return traces


@dataclass(slots=True)
class FileGroup:
    """Files that are one table, or several where one file holds several; of no kind if they hold none."""

    name: str
    kind: Format | None
    paths: list[Path] = field(default_factory=list)


def file_groups(files: Iterable[SourceFile]) -> list[FileGroup]:
    """The files of each table.

    Parquet files of one folder, and of the folders ``key=value`` under it, are one table; any other file is its own.
    """
    groups: dict[str, FileGroup] = {}
    for file in files:
        kind, key = format_of(file.path, file.name), file.name
        if kind is Format.PARQUET:
            folder = Path(file.name).parent
            while "=" in folder.name:
                folder = folder.parent
            key = str(folder)
        name = file.name if kind is None else table_name(key)
        groups.setdefault(key, FileGroup(name, kind)).paths.append(file.path)
    for key, group in groups.items():
        if group.kind is Format.PARQUET and len(group.paths) == 1 and group.paths[0].parent == Path(key):
            group.name = table_name(group.paths[0].name)
    return list(groups.values())
