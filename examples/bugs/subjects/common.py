"""What do these programs share? The mesh, whole tensors that every rank draws alike, and pieces of them."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def start(*axes: str) -> DeviceMesh:
    """The mesh over all ranks of the job; each axis has an option, ``--dp 2``. Without torchrun it has one rank."""
    parser = argparse.ArgumentParser()
    for axis in axes:
        parser.add_argument(f"--{axis}", type=int, default=1, help=f"ranks along {axis}")
    sizes = vars(parser.parse_args())
    torch.set_default_dtype(torch.float64)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    elif not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return init_device_mesh("cpu", tuple(sizes[axis] for axis in axes), mesh_dim_names=axes)


def whole(seed: int, *shape: int) -> Tensor:
    """Gaussian numbers, the same on every rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-1] ** -0.5


def piece(full: Tensor, mesh: DeviceMesh, **dims: int) -> Tensor:
    """This rank's piece of ``full``, cut along a tensor dim for each mesh axis named: ``piece(x, mesh, dp=0)``."""
    for axis, dim in dims.items():
        full = full.chunk(mesh[axis].size(), dim)[mesh.get_local_rank(axis)]
    return full.clone()
