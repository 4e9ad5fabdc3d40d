"""What the fixtures of worlds give: ranks to run a function on, with a mesh that is current on each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from torch.distributed.device_mesh import init_device_mesh

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.mesh.entry import set_current_entry
from shardwise.mesh.program import MeshFollower
from shardwise.mesh.shape import MeshShape
from shardwise.worlds.world import FakeWorld, InProcessWorld, ProcessWorld, World

Result = TypeVar("Result")


@dataclass(frozen=True)
class MeshWorld:
    """The ranks of ``world``, on each of which the mesh ``shape`` is current."""

    world: World
    shape: MeshShape

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return self.world.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those of them that are run."""
        return self.world.ranks

    def run(self, fn: Callable[..., Result], *args: object) -> list[Result]:
        """What ``fn(*args)`` returns on each rank that is run, in rank order."""
        return self.world.run(self._on_rank, fn, args)

    def _on_rank(self, fn: Callable[..., Result], args: tuple[object, ...]) -> Result:
        MeshFollower().start(init_device_mesh("cpu", self.shape.sizes, mesh_dim_names=self.shape.names))
        try:
            return fn(*args)
        finally:
            set_current_entry(None)


@dataclass(frozen=True)
class WorldMaker:
    """Called with a mesh it gives a world of its ranks. ``kind`` is ``fake``, ``in-process`` or ``processes``."""

    kind: str

    def __call__(self, mesh: str | Mapping[str, int], *, rank: int | None = None, timeout_s: float = 60.0) -> MeshWorld:
        """``rank``: the one that is run in a fake world; ``timeout_s``: how long the others may take."""
        shape = MeshShape.of(mesh)
        if self.kind == "fake":
            return MeshWorld(FakeWorld(shape.ranks, rank or 0), shape)
        if rank is not None:
            raise SpmdValueError(f"rank={rank!r} is for the fake world: this one runs all {shape.ranks}", code="SW905")
        world: World
        if self.kind == "processes":
            world = ProcessWorld(shape.ranks, timeout_s)
        else:
            world = InProcessWorld(shape.ranks, timeout_s)
        return MeshWorld(world, shape)
