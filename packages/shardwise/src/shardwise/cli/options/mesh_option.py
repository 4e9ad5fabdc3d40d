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

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "Say the axes and their sizes, outermost first, like --mesh dp=2,tp=4"


def require_processes(mesh: MeshShape | None, alone: str) -> MeshShape:
    """The mesh on which a command starts a process for each rank; ``alone`` says why one rank is not enough."""
    from shardwise.worlds.processes import MOST

    if mesh is None:
        raise click.UsageError("say on which mesh: --mesh dp=2,tp=2, or start the command with torchrun")
    if mesh.ranks == 1:
        raise click.UsageError(f"--mesh {mesh} has one rank: {alone}")
    if mesh.ranks > MOST:
        raise click.UsageError(
            f"--mesh {mesh} would start {mesh.ranks} processes, more than {MOST}: axes of two ranks show what "
            "larger ones do; or start the command with torchrun on the machines of the job"
        )
    return mesh


def world_size_of(mesh: MeshShape | None, world_size: int | None, default: int) -> int:
    """The number of ranks, from both options. A usage error that shows the arithmetic if they disagree."""
    if mesh is None:
        return default if world_size is None else world_size
    if world_size is not None and world_size != mesh.ranks:
        raise click.UsageError(
            f"--mesh {mesh} has {mesh.arithmetic} ranks, but --world-size is {world_size}; leave --world-size out"
        )
    return mesh.ranks
