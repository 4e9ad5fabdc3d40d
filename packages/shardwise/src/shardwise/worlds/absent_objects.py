"""Objects that come from ranks which are not run: there are none, so a list stays as it is.

Only where a program goes on with what it has received is one rank not enough (``OtherRanksNeeded``): the stages of a
pipeline send each other shapes, and a checkpoint must hold the shards of all ranks. So it is where a program fails
after it has received lengths, bytes or objects: what it could not go on with may be what did not come.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from shardwise.host.attribute_patch import patched
from shardwise.host.torchrun import TorchrunJob

_SOURCE_AT = {"broadcast_object_list": 1, "scatter_object_list": 2}
"""The position of the source among the arguments."""
_CHECKPOINT = "torch.distributed.checkpoint."
"""Where the classes of plans are defined."""


class OtherRanksNeeded(BaseException):
    """The program needs objects of ranks that are not run. Not an Exception: a program that catches those is not to go
    on.
    """


@contextlib.contextmanager
def absent_objects(world: TorchrunJob, *, alone: bool) -> Iterator[None]:
    """Inside the block nothing is received from ranks other than that of ``world``; ``alone``: no other is run."""
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        replaced: dict[str, Callable[..., object]] = {
            name: _unchanged(world, getattr(dist, name), at, missing) for name, at in _SOURCE_AT.items()
        }
        replaced["broadcast"] = _noting(world, dist.broadcast, missing)
        replaced["recv_object_list"] = _receiving(world, alone)
        replaced["gather_object"] = _gathering(world, dist.gather_object, alone)
        for name, replacement in replaced.items():
            for module in (dist, dist.distributed_c10d):
                stack.enter_context(patched(module, name, replacement))
        try:
            yield
        except Exception as error:
            if not (alone and missing):
                raise
            raise OtherRanksNeeded(f"rank {world.rank} fails after it received {missing[-1]}") from error


def _unchanged(
    world: TorchrunJob, original: Callable[..., None], position: int, missing: list[str]
) -> Callable[..., None]:
    @functools.wraps(original)
    def receive(*args: object, **options: object) -> None:
        source = options.get("src", args[position] if len(args) > position else 0)
        if source in (None, world.rank):
            original(*args, **options)
        else:
            missing.append(f"objects from {source}")

    return receive


def _noting(world: TorchrunJob, original: Callable[..., object], missing: list[str]) -> Callable[..., object]:
    """``broadcast``, which notes the lengths and bytes that should come from another rank."""

    @functools.wraps(original)
    def broadcast(tensor: torch.Tensor, src: int | None = None, *args: object, **options: object) -> object:
        if src not in (None, world.rank) and not (tensor.is_floating_point() or tensor.is_complex()):
            missing.append(f"numbers from {src}")
        return original(tensor, src, *args, **options)

    return broadcast


def _receiving(world: TorchrunJob, alone: bool) -> Callable[..., int]:
    @functools.wraps(dist.recv_object_list)
    def receive(
        object_list: object, src: int | None = None, group: ProcessGroup | None = None, *args: object, **options: object
    ) -> int:
        if alone:
            raise OtherRanksNeeded(f"rank {world.rank} receives objects from {'another rank' if src is None else src}")
        return 0 if src is None else src

    return receive


def _gathering(world: TorchrunJob, original: Callable[..., None], alone: bool) -> Callable[..., None]:
    @functools.wraps(original)
    def gather(obj: object, *args: object, **options: object) -> None:
        if alone and world.size > 1 and type(obj).__module__.startswith(_CHECKPOINT):
            raise OtherRanksNeeded("a checkpoint is put together of the plans of all ranks")
        original(obj, *args, **options)

    return gather
