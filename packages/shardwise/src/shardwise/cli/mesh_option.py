"""What does ``--mesh dp=2,tp=4`` say? Names and sizes of the axes, outermost first, and with them the world size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import click

EXAMPLE = "write it like dp=2,tp=4, outermost axis first"


@dataclass(frozen=True)
class MeshShape:
    """The axes of a mesh with their sizes."""

    axes: tuple[tuple[str, int], ...]

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


class MeshParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``--mesh``."""

    name = "mesh"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> MeshShape:
        axes: dict[str, int] = {}
        for part in value.split(","):
            name, equals, size = (piece.strip() for piece in part.partition("="))
            if not equals or not name.isidentifier():
                self.fail(f"{part.strip()!r} in {value!r} is not an axis with its size: {EXAMPLE}", param, ctx)
            if not size.isascii() or not size.isdigit() or int(size) < 1:
                self.fail(f"axis {name} has size {size!r}, which is not a number of ranks: {EXAMPLE}", param, ctx)
            if name in axes:
                self.fail(f"axis {name} is given twice in {value!r}", param, ctx)
            axes[name] = int(size)
        return MeshShape(tuple(axes.items()))


def world_size_of(mesh: MeshShape | None, world_size: int | None, default: int) -> int:
    """The number of ranks, from both options. A usage error that shows the arithmetic if they disagree."""
    if mesh is None:
        return default if world_size is None else world_size
    if world_size is not None and world_size != mesh.ranks:
        raise click.UsageError(
            f"--mesh {mesh} has {mesh.arithmetic} ranks, but --world-size is {world_size}; leave --world-size out"
        )
    return mesh.ranks
