"""The page of the ranks: what they disagree on, who compiled what beside whom, and who kept the others waiting."""

from __future__ import annotations

from typing import Any

from tracewise.ranks.align import MOST_COLUMNS, Alignment, RankClass
from tracewise.ranks.parity import Parity
from tracewise.ranks.wording import ranks_text, sentence
from tracewise.report.html import duration
from tracewise.report.links import Links
from tracewise.report.tables import Cell, Column, DataTable


def ranks_values(alignment: Alignment, parities: list[Parity], links: Links) -> dict[str, Any]:
    """What the template shows beside the table of the ranks."""
    columns = alignment.classes[0].units if alignment.classes else []
    return {
        "alignment": alignment,
        "headline": sentence(alignment.headline),
        "differences": _differences(alignment, links),
        "columns": [(number, unit) for number, unit in enumerate(columns[:MOST_COLUMNS], 1)],
        "more_columns": max(len(columns) - MOST_COLUMNS, 0),
        "classes": [_row(found, alignment, links) for found in alignment.classes[:MOST_COLUMNS]],
        "waits": _waits(alignment, links),
        "parity": [
            (links.compilation(p.unit), p.unit, p.offset, p.missing_waits)
            for p in parities
            if p.offset or p.missing_waits
        ],
        "parities": len(parities),
    }


def _row(found: RankClass, alignment: Alignment, links: Links) -> dict[str, Any]:
    """A class of ranks in the matrix; what it shares with the first row is A."""
    path = alignment.classes[0]
    cells = []
    for position, letter in enumerate(found.cells[:MOST_COLUMNS]):
        own = {id(d.others): d.mine for d in alignment.differences if d.ranks == found.ranks and d.mine is not None}
        unit = path.units[position] if letter == "A" else own.get(id(path.units[position]))
        cells.append((letter, links.compilation(unit) if unit is not None else ""))
    return {"name": sentence(ranks_text(found.ranks)), "cells": cells, "extra": found.extra}


def _differences(alignment: Alignment, links: Links) -> DataTable:
    rows = []
    for item in alignment.differences:
        mine = links.compilation(item.mine) if item.mine is not None else ""
        others = links.compilation(item.others) if item.others is not None else ""
        rows.append(
            [
                Cell(item.level, kind="error" if item.level == "hang risk" else "warning"),
                Cell(ranks_text(item.ranks) if item.ranks else ""),
                Cell(str(item.position or ""), sort=item.position),
                Cell(item.text),
                Cell(str(item.mine.id) if item.mine else "", mine),
                Cell(str(item.others.id) if item.others else "", others),
            ]
        )
    names = ("what", "ranks", "position", "difference", "theirs", "the others'")
    columns = [Column(name, name == "position") for name in names]
    return DataTable("difference-table", "Differences", columns, rows, filters="what")


def _waits(alignment: Alignment, links: Links) -> DataTable:
    rows = [
        [
            Cell(str(wait.unit.id), links.compilation(wait.unit)),
            Cell(wait.unit.function),
            Cell(str(wait.slowest), sort=wait.slowest),
            Cell(str(wait.fastest), sort=wait.fastest),
            Cell(duration(wait.spread_us), sort=wait.spread_us),
        ]
        for wait in alignment.waits
    ]
    names = ("compilation", "function", "slowest rank", "fastest rank", "others wait")
    columns = [Column(name, name not in ("compilation", "function")) for name in names]
    return DataTable("wait-table", "Compilations that one rank takes longer for", columns, rows)
