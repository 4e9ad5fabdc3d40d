"""Sizes that each rank has found for itself: the tags of tensors with such a dim."""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.diagnostics.source import Site
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import TensorType

from .tagging import Cell, Provenance, Tag, set_tag, tag_of


@dataclass(frozen=True, slots=True)
class OwnLength:
    """The size of a dim that each rank of ``axis`` has found for itself, by values that vary there.

    ``site``  of the call that did; ``text`` says what the size is, ``instead`` how to have one that is equal.
    """

    axis: MeshAxis
    dim: int
    site: Site | None
    text: str
    instead: str


class RaggedTag(Tag):
    """The tag of a tensor with dims of an ``OwnLength``. Nothing that only knows ``Tag`` may hand it on."""

    __slots__ = ("lengths",)

    def __init__(self, type: TensorType, origin: Provenance, cell: Cell | None, lengths: tuple[OwnLength, ...]) -> None:
        super().__init__(type, origin, cell)
        self.lengths = lengths

    def of_type(self, type: TensorType, origin: Provenance) -> Tag:
        return RaggedTag(type, origin, self.cell, self.lengths)

    def in_cell(self, cell: Cell) -> Tag:
        return RaggedTag(self.type, self.origin, cell, self.lengths)


def forget_lengths(x: object) -> None:
    """No dim of ``x`` counts as one of an ``OwnLength`` from here on."""
    tag = tag_of(x)
    if isinstance(tag, RaggedTag):
        set_tag(x, Tag(tag.own_type, tag.origin, tag.cell))
