"""Which part of the book is a row from? Families are the modules of rows, for reports that count by subject."""

from __future__ import annotations

import functools

from shardwise.op_rules.registry import modules
from shardwise.op_rules.schema import Row


def family(row: Row) -> str:
    """The name of the module that the row is in, in words."""
    return _by_op()[row.op].replace("_", " ")


@functools.cache
def _by_op() -> dict[str, str]:
    return {row.op: name for name, rows in modules().items() for row in rows}
