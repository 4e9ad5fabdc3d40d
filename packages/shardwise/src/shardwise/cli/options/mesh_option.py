"""What does ``--mesh dp=2,tp=4`` say? Names and sizes of the axes, outermost first, and with them the world size."""

from __future__ import annotations

import click

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.mesh.shape import MeshShape


class MeshParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``--mesh``."""

    name = "mesh"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> MeshShape:
        try:
            return MeshShape.parse(value)
        except SpmdValueError as error:
            self.fail(error.message, param, ctx)


def world_size_of(mesh: MeshShape | None, world_size: int | None, default: int) -> int:
    """The number of ranks, from both options. A usage error that shows the arithmetic if they disagree."""
    if mesh is None:
        return default if world_size is None else world_size
    if world_size is not None and world_size != mesh.ranks:
        raise click.UsageError(
            f"--mesh {mesh} has {mesh.arithmetic} ranks, but --world-size is {world_size}; leave --world-size out"
        )
    return mesh.ranks
