"""Positions that are counted from the start of a rank's own part, and what is looked up by them: their tags."""

from __future__ import annotations

from shardwise.diagnostics.source import Site
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import TensorType

from .tagging import Cell, Provenance, Tag, set_tag, tag_of


class OwnPositions:
    """That equal positions were moved by each rank's number along ``axis``, at ``site``: many lie outside of its part.

    ``masked``  what was looked up by them has been set to zero somewhere by what differs from rank to rank.
    """

    __slots__ = ("axis", "masked", "site")

    def __init__(self, axis: MeshAxis, site: Site | None) -> None:
        self.axis = axis
        self.site = site
        self.masked = False


class MovedTag(Tag):
    """The tag of such positions, or (``rows``) of what is looked up by them.

    Nothing that only knows ``Tag`` may hand it on: calls on such a tensor go the slow way.
    """

    __slots__ = ("moved", "rows")

    def __init__(
        self, type: TensorType, origin: Provenance, cell: Cell | None, moved: OwnPositions, *, rows: bool
    ) -> None:
        super().__init__(type, origin, cell)
        self.moved = moved
        self.rows = rows

    def of_type(self, type: TensorType, origin: Provenance) -> Tag:
        return MovedTag(type, origin, self.cell, self.moved, rows=self.rows)

    def in_cell(self, cell: Cell) -> Tag:
        return MovedTag(self.type, self.origin, cell, self.moved, rows=self.rows)


class CountedTag(Tag):
    """The tag of positions that each rank counts from the start of its own shard over ``axis``: of its largest element.

    Nothing that only knows ``Tag`` may hand it on, as with ``MovedTag``.
    """

    __slots__ = ("axis",)

    def __init__(self, type: TensorType, origin: Provenance, cell: Cell | None, axis: MeshAxis) -> None:
        super().__init__(type, origin, cell)
        self.axis = axis

    def of_type(self, type: TensorType, origin: Provenance) -> Tag:
        return CountedTag(type, origin, self.cell, self.axis)

    def in_cell(self, cell: Cell) -> Tag:
        return CountedTag(self.type, self.origin, cell, self.axis)


def mark_counted(x: object, axis: MeshAxis) -> None:
    """``x`` has such positions; it keeps its type."""
    tag = tag_of(x)
    if tag is not None and tag.__class__ is Tag:
        set_tag(x, CountedTag(tag.own_type, tag.origin, tag.cell, axis))


def mark_moved(x: object, moved: OwnPositions, *, rows: bool) -> None:
    """``x`` has such positions, or what is looked up by them; it keeps its type."""
    tag = tag_of(x)
    if tag is not None and tag.__class__ in (Tag, MovedTag):
        set_tag(x, MovedTag(tag.own_type, tag.origin, tag.cell, moved, rows=rows))


def moved_rows(x: object) -> OwnPositions | None:
    """By which positions ``x`` has been looked up, if nothing of it has been set to zero since."""
    tag = tag_of(x)
    return tag.moved if isinstance(tag, MovedTag) and tag.rows and not tag.moved.masked else None
