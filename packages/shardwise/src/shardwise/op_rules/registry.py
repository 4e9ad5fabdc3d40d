"""Which row describes an operator? All rows of the rule book, assembled once and looked up by canonical name.

A name may be prefixed where torch gives one name to functions that differ: ``torch.embedding`` takes its operands in
another order than ``nn.functional.embedding``, whose row has the plain name; ``Tensor.where`` likewise. A caller tries
the prefixed name first. An in-place name that has no row of its own has the row of the name without the underscore.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import replace

from .operators import (
    attention,
    backward,
    casting,
    contraction,
    control_flow,
    convolution,
    elementwise,
    fourier,
    indexing,
    linear_algebra,
    losses,
    masked,
    metadata,
    normalisation,
    opaque,
    optimizer,
    reduction,
    shaping,
    value_reads,
)
from .operators import factories as factory
from .operators import random_ops as random
from .operators.dims import all_labels
from .propagation.dim_labels import Labeller
from .schema import Row

_MODULES: tuple[types.ModuleType, ...] = (
    elementwise,
    casting,
    contraction,
    convolution,
    reduction,
    masked,
    losses,
    shaping,
    indexing,
    attention,
    normalisation,
    fourier,
    linear_algebra,
    backward,
    factory,
    random,
    value_reads,
    metadata,
    optimizer,
    control_flow,
    opaque,
)


def lookup(name: str) -> Row | None:
    """The row of the operator with canonical name ``name``; None if the book has none."""
    table = _table()
    row = table.get(name)
    if row is None and name.endswith("_") and not name.endswith("__"):
        row = table.get(name[:-1])
    return row


def rows() -> tuple[Row, ...]:
    """Every row, in the order of the modules."""
    return tuple(row for module in _MODULES for row in module.ROWS)


def modules() -> dict[str, tuple[Row, ...]]:
    """The rows of every module, by the module's own name."""
    return {module.__name__.rpartition(".")[2]: module.ROWS for module in _MODULES}


@functools.cache
def _table() -> dict[str, Row]:
    return assemble(label(rows(), all_labels()))


def label(book: tuple[Row, ...], labels: Mapping[str, Labeller]) -> tuple[Row, ...]:
    """The rows with their labels; labels for a name that has no row are refused."""
    stray = sorted(set(labels) - {row.op for row in book})
    if stray:
        raise ValueError(f"labels for operators without a row: {', '.join(stray)}")
    return tuple(replace(row, labels=labels[row.op]) if row.op in labels else row for row in book)


def assemble(book: tuple[Row, ...]) -> dict[str, Row]:
    """Rows by every name they answer to; two rows for one name are refused."""
    table: dict[str, Row] = {}
    for row in book:
        for name in (row.op, *row.spellings):
            if name in table:
                raise ValueError(f"{name!r} has two rows: {table[name].op!r} and {row.op!r}")
            table[name] = row
    return table
