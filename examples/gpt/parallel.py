"""Where do ranks sit, and how does an activation enter and leave a tensor-parallel region?

Mesh axes: ``dp`` splits the batch, ``tp`` splits the weights. Between blocks an activation is I@tp, the same on every
tp rank; with sequence parallelism it is S(1)@tp, each tp rank holding a piece of the sequence.
"""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S


@dataclass(frozen=True)
class Parallel:
    """The mesh, this rank's place in it, and the form of activations between blocks."""

    mesh: DeviceMesh
    sequence_parallel: bool = False

    def size(self, axis: str) -> int:
        return self.mesh[axis].size()

    def rank(self, axis: str) -> int:
        return self.mesh.get_local_rank(axis)

    def enter(self, x_BTD: Tensor) -> Tensor:
        """-> R@tp: every tp rank is about to multiply all of x with its own piece of a weight."""
        if self.sequence_parallel:
            return spmd.all_gather(x_BTD, "tp", src=S(1), dst=R)
        return spmd.convert(x_BTD, "tp", src=I, dst=R)

    def leave(self, x_BTD: Tensor) -> Tensor:
        """P@tp ->: add up the tp ranks' contributions."""
        if self.sequence_parallel:
            return spmd.reduce_scatter(x_BTD, "tp", src=P, dst=S(1))
        return spmd.all_reduce(x_BTD, "tp", src=P, dst=I)

    def at_use(self, weight: Tensor) -> Tensor:
        """I@tp -> what may meet an activation between blocks; with sequence parallelism its gradient needs a sum."""
        if self.sequence_parallel:
            return spmd.convert(weight, "tp", src=I, dst=R)
        return weight


def init_mesh(dp: int | None, tp: int | None, device_type: str) -> DeviceMesh:
    """The dp x tp mesh over all ranks of the job; a plain ``python train.py`` is a job of one rank."""
    if not dist.is_initialized():
        backend = "nccl" if device_type == "cuda" else "gloo"
        if "RANK" in os.environ:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    world = dist.get_world_size()
    tp = tp or (2 if world % 2 == 0 else 1)
    dp = dp or world // tp
    if dp * tp != world:
        raise SystemExit(f"--dp {dp} times --tp {tp} is not the number of ranks, {world}")
    return init_device_mesh("cuda" if device_type == "cuda" else "cpu", (dp, tp), mesh_dim_names=("dp", "tp"))


class Init:
    """Makes parameters: draws the full weight and keeps this rank's piece, so that every mesh trains the same model.

    A parameter is R@dp. On tp it is S(``shard_dim``), or I if ``shard_dim`` is None.
    """

    def __init__(self, parallel: Parallel, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.tp, self.tp_rank = parallel.size("tp"), parallel.rank("tp")
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, shard_dim: int | None) -> nn.Parameter:
        """Gaussian with the usual 1/sqrt(fan_in)."""
        if self.device.type == "meta":
            return self._parameter(torch.empty(shape, device="meta"), shard_dim)
        full = torch.randn(shape, generator=self.generator, dtype=self.dtype) * shape[-1] ** -0.5
        return self._parameter(full, shard_dim)

    def constant(self, value: float, *shape: int) -> nn.Parameter:
        return self._parameter(torch.full(shape, value, device=self.device), None)

    def _parameter(self, full: Tensor, shard_dim: int | None) -> nn.Parameter:
        piece = full if shard_dim is None else full.chunk(self.tp, shard_dim)[self.tp_rank]
        parameter = nn.Parameter(piece.to(self.device, self.dtype, copy=True))
        return spmd.assert_type(parameter, {"dp": R, "tp": I if shard_dim is None else S(shard_dim)})
