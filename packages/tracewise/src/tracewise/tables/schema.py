"""The columns of the tables.

A change of name, type or meaning raises ``SCHEMA_VERSION``; a new column at the end does not.

Types: ``time`` is integer microseconds since the epoch in UTC; ``json`` is text that holds JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``type`` is one of time, text, integer, real, boolean, json."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table: ``rows`` in ``tables.rows`` yields tuples in the order of ``columns``."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


COMMON = (
    Column("time", "time", "when it happened"),
    Column("run", "integer", "number of the run, 0 is the oldest"),
    Column("rank", "integer", "rank of the process; null outside of torch.distributed"),
    Column("host", "text", "name of the machine; null where no input tells it"),
    Column("file", "text", "log that tells it"),
    Column("line", "integer", "line of the record's head in the log"),
)
ID = Column("compile_id", "text", "compile id with its attempt, as torch writes it: [0/1_2]")
UNIT = Column("compilation", "text", "compile id without attempt")


def _table(name: str, meaning: str, *columns: tuple[str, str, str] | Column) -> Table:
    own = tuple(column if isinstance(column, Column) else Column(*column) for column in columns)
    return Table(name, meaning, COMMON + own)


TABLES = {
    table.name: table
    for table in (
        _table(
            "events",
            "one row a record of the log, but for the table of texts",
            ("kind", "text", "kind of record"),
            ("name", "text", "name of the artifact, event or file"),
            ID,
            Column("compilation", "text", "compile id without attempt; a reset of torch counts anew and is not told"),
            ("phase", "text", "begin, end or instant (B, E, i) of a timeline event"),
            ("pid", "integer", "process"),
            ("bytes", "integer", "size of the payload"),
            ("md5", "text", "checksum of the payload"),
            ("source", "text", "file and line of torch that wrote the record"),
            ("flags", "text", "what was wrong with the record, separated by spaces"),
            ("offset", "integer", "byte of the file where the record begins"),
        ),
        _table(
            "spans",
            "one row a stretch of time of a compilation",
            ("name", "text", "name of the phase"),
            UNIT,
            ("function", "text", "function that was compiled"),
            ("dur_us", "real", "duration in microseconds; null if the end was never written"),
            ("self_us", "real", "duration without the spans inside"),
            ("depth", "integer", "number of spans around it"),
            ("parent", "text", "name of the span around it"),
            ("args", "json", "what torch wrote beside it"),
        ),
        _table(
            "compilations",
            "one row a compilation",
            UNIT,
            ("function", "text", "function that was compiled"),
            ("site", "text", "file and line where it begins"),
            ("status", "text", "ok, restarted, failed, empty or unfinished"),
            ("attempts", "integer", "times the analysis was begun"),
            ("breaks", "integer", "graph breaks"),
            ("dur_us", "real", "compile time in microseconds"),
            ("recompile_reason", "text", "the guard that failed, if this is a recompilation"),
            ("fail_type", "text", "class of the exception that ended it"),
            ("fail_reason", "text", "text of that exception"),
            ("backend_us", "real", "time in the backend"),
            ("inductor_us", "real", "time in inductor"),
            ("codegen_us", "real", "time generating code"),
            ("graph_ops", "integer", "operations in the graph"),
            ("graph_nodes", "integer", "nodes in the graph"),
            ("guards", "integer", "guards of the compiled code"),
            ("cache_hits", "integer", "cache looks that hit"),
            ("cache_misses", "integer", "cache looks that missed"),
            ("metrics", "json", "all that torch wrote about it, without the configs"),
        ),
        _table(
            "problems",
            "one row a problem of a compilation",
            UNIT,
            ("id", "text", "stable name of the problem: the same in another run and on another rank"),
            ("kind", "text", "failure, graph-break, restart, ..."),
            ("severity", "text", "error, warning or note"),
            ("headline", "text", "what happened, in a line"),
            ("site", "text", "file and line of the user's code"),
            ("cost_us", "real", "compile time wasted by all occurrences of the problem together"),
        ),
        _table(
            "caches",
            "one row a look into a cache",
            UNIT,
            ("cache", "text", "fx_graph, aotautograd, ..."),
            ("state", "text", "hit, miss, bypass or disabled"),
            ("key", "text", "key that was looked for"),
            ("reason", "text", "why the cache was bypassed"),
            ("saved_us", "real", "time that the hit saved"),
        ),
        _table(
            "guards",
            "one row a condition on symbolic sizes",
            UNIT,
            ("kind", "text", "guard or specialization"),
            ("expression", "text", "the condition, or the symbol that became a number"),
            ("value", "text", "the number"),
            ("reason", "text", "why it became a number"),
            ("site", "text", "file and line of the user's code"),
        ),
        _table(
            "collectives",
            "one row a collective of a compiled graph, in the order of its schedule",
            UNIT,
            ("seq", "integer", "position in the schedule of the graph"),
            ("op", "text", "operation"),
        ),
    )
}
