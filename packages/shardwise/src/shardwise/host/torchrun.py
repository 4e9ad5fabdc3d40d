"""What does a script find that ``torchrun`` has started? The variables of the rendezvous, and a world to join.

Shared by the fake world, where one rank runs alone, and the real one, where every rank is a process.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.interop.torch_compat import is_part_of_mesh, mesh_of_one_rank

from .launcher import OWN_RUN

RANKS_PER_HOST = 8


@dataclass
class TorchrunJob:
    """A job, and which of its ranks this process is. ``command`` is the command of ours that runs it.

    ``guessed``  nobody has said how many ranks there are, so that the program may, until it has joined them.

    Errors: SW903 for a job without ranks, or a rank outside it.
    """

    size: int
    rank: int = 0
    command: str = "check"
    port: int = 29500
    guessed: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SpmdValueError(f"a world needs at least one rank, got {self.size}", code="SW903")
        if not 0 <= self.rank < self.size:
            raise SpmdValueError(
                f"rank {self.rank} is not in a world of {self.size}: ranks go from 0 to {self.size - 1}", code="SW903"
            )

    @property
    def local_size(self) -> int:
        """Ranks on this rank's host."""
        return min(self.size, RANKS_PER_HOST)

    @property
    def local_rank(self) -> int:
        """This rank's number on its host."""
        return self.rank % self.local_size

    @property
    def variables(self) -> dict[str, str]:
        """The environment that ``torchrun`` would have set for this rank."""
        host = self.rank // self.local_size
        hosts = math.ceil(self.size / self.local_size)
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "GROUP_RANK": str(host),
            "GROUP_WORLD_SIZE": str(hosts),
            "ROLE_RANK": str(self.rank),
            "ROLE_NAME": "default",
            "ROLE_WORLD_SIZE": str(self.size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RUN_ID": OWN_RUN,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }

    def adapt(self, size: int) -> bool:
        """Become a job of ``size`` ranks; False if the size is no guess, or this rank would not be among them."""
        if not self.guessed or size <= self.rank:
            return False
        self.size = size
        os.environ.update(self.variables)
        return True


class Membership:
    """Whether the script has joined the job: its process group may be there before."""

    def __init__(self, joined: bool) -> None:
        self.joined = joined

    def joining(self, original: Callable[..., object]) -> Callable[..., object]:
        """``original``, after which the script has joined."""

        @functools.wraps(original)
        def join(*args: object, **options: object) -> object:
            made = original(*args, **options)
            self.joined = True
            return made

        return join

    def is_initialized(self, original: Callable[[], bool]) -> Callable[[], bool]:
        """``dist.is_initialized`` as the script finds it."""
        return lambda: self.joined and original()


def init_process_group_of(
    world: TorchrunJob, original: Callable[..., None], *, backend: str, joined: bool
) -> Callable[..., None]:
    """``init_process_group`` that takes whatever the script says and joins ``world``, unless that has happened."""

    @functools.wraps(original)
    def init_process_group(
        asked: object = None,
        init_method: object = None,
        timeout: object = None,
        world_size: int = -1,
        rank: int = -1,
        *rest: object,
        **options: object,
    ) -> None:
        if world_size not in (-1, world.size) and not (world_size > 1 and world.adapt(world_size)):
            raise SpmdValueError(
                f"the script asks for a world of {world_size} ranks, but the check runs with {world.size}",
                code="SW903",
                help=(more_ranks(world, world_size),),
            )
        if rank not in (-1, world.rank):
            raise SpmdValueError(
                f"the script says it is rank {rank}, but the check runs rank {world.rank}",
                code="SW903",
                help=(
                    *((f"shardwise check --rank {rank}",) if world.command == "check" else ()),
                    'take the rank from os.environ["RANK"]',
                ),
            )
        nonlocal joined
        if joined:
            joined = False
            return
        original(backend, world_size=world.size, rank=world.rank)
        world.guessed = False

    return init_process_group


def init_device_mesh_of(world: TorchrunJob, original: Callable[..., object]) -> Callable[..., object]:
    """``init_device_mesh`` that shows the arithmetic when the mesh does not fit into the world."""

    @functools.wraps(original)
    def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *rest: object, **options: object) -> object:
        needed = math.prod(mesh_shape)
        if needed > world.size and not world.adapt(needed):
            product = " x ".join(map(str, mesh_shape))
            raise SpmdValueError(
                f"a mesh of {product} = {needed} ranks does not fit into a world of {world.size}",
                code="SW903",
                help=(more_ranks(world, needed),),
            )
        return original(device_type, mesh_shape, *rest, **options)

    return init_device_mesh


def mesh_init_of(
    original: Callable[..., None], on_mesh: Callable[[object], None], *, alone: bool = False
) -> Callable[..., None]:
    """``DeviceMesh.__init__`` that says when the script has made a mesh, and no part of one.

    ``alone``  a mesh has as many axes as asked for, under the same names, each of one rank.
    """

    @functools.wraps(original)
    def init(self: object, *args: object, **options: object) -> None:
        if alone:
            args, options = mesh_of_one_rank(args, options)
        original(self, *args, **options)
        if not is_part_of_mesh(options):
            on_mesh(self)

    return init


def cutting(original: Callable[..., object], on_mesh: Callable[[object], None]) -> Callable[..., object]:
    """What makes a mesh by cutting an axis of another one, which says so: that is a mesh of its own."""

    @functools.wraps(original)
    def cut(*args: object, **options: object) -> object:
        mesh = original(*args, **options)
        on_mesh(mesh)
        return mesh

    return cut


def more_ranks(world: TorchrunJob, ranks: int) -> str:
    if world.command == "check":
        return f"shardwise check --world-size {ranks}"
    return f"shardwise {world.command} --mesh with axes whose sizes multiply to {ranks}"
