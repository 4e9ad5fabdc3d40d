"""Axes with their sizes, as they are written where no mesh is made yet: ``dp=2,tp=4``, outermost first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

from .axis import MeshAxis

MOST_RANKS = 2**20
MOST_LETTERS = 4000
"""In one text; Python refuses to read numbers of some more digits."""
EXAMPLE = "write it like dp=2,tp=4, outermost axis first"


@dataclass(frozen=True)
class MeshShape:
    """The axes of a mesh with their sizes."""

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str) -> MeshShape:
        """The shape that ``text`` says. Errors: SW903 with what is wrong and how it is written."""
        if len(text) > MOST_LETTERS:
            raise SpmdValueError(f"a mesh of {len(text)} letters is none that was written: {EXAMPLE}", code="SW903")
        axes: dict[str, int] = {}
        for part in text.split(","):
            name, equals, size = (piece.strip() for piece in part.partition("="))
            if not equals or not name.isidentifier():
                of = "" if part.strip() == text.strip() else f" in {text!r}"
                raise SpmdValueError(f"{part.strip()!r}{of} is not an axis with its size: {EXAMPLE}", code="SW903")
            if not size.isascii() or not size.isdigit() or int(size) < 1:
                said = f"axis {name} has size {size!r}, which is not a number of ranks: {EXAMPLE}"
                raise SpmdValueError(said, code="SW903")
            if name in axes:
                raise SpmdValueError(f"axis {name} is given twice in {text!r}", code="SW903")
            axes[name] = int(size)
        if math.prod(axes.values()) > MOST_RANKS:
            said = f"{text!r} has {math.prod(axes.values())} ranks, more than the {MOST_RANKS} that can be imagined"
            raise SpmdValueError(said, code="SW903")
        return cls(tuple(axes.items()))

    @classmethod
    def of(cls, mesh: str | Mapping[str, int] | MeshShape) -> MeshShape:
        """The shape that a text or a mapping says. Errors: SW903 for a wrong one, SW905 for neither."""
        if isinstance(mesh, MeshShape):
            return mesh
        if isinstance(mesh, str):
            return cls.parse(mesh)
        if isinstance(mesh, Mapping) and mesh:
            return cls.parse(",".join(f"{name}={size}" for name, size in mesh.items()))
        said = f"a mesh is a text or a mapping from names to sizes, got {shown(mesh)}: {EXAMPLE}"
        raise SpmdArgumentError(said, code="SW905")

    def as_axes(self) -> dict[str, MeshAxis]:
        """The axes over ranks that are numbered from 0, the last axis fastest."""
        strides = [math.prod(self.sizes[at + 1 :]) for at in range(len(self.sizes))]
        return {name: MeshAxis.of(size, stride) for (name, size), stride in zip(self.axes, strides, strict=True)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    @property
    def ranks(self) -> int:
        return math.prod(self.sizes)

    @property
    def arithmetic(self) -> str:
        """``2 x 4 = 8``."""
        return f"{' x '.join(map(str, self.sizes))} = {self.ranks}" if len(self.axes) > 1 else str(self.ranks)

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


def corners(world_size: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
    """The ranks with the first or the last coordinate on every axis of a mesh, and the last rank of the world."""
    sizes = sizes if sizes and math.prod(sizes) <= world_size else (world_size,)
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    ends = [{0, size - 1} for size in sizes]
    at = (
        sum(c * stride for c, stride in zip(coordinate, strides, strict=True))
        for coordinate in itertools.product(*ends)
    )
    return tuple(sorted({*at, world_size - 1}))
