"""Small programs on all ranks of a world in this process, under the checker, held against what one device computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S
from shardwise.types import SpmdTypeError
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import InProcessWorld

RANKS = 2


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers that every rank draws alike."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shard(value: Tensor, dim: int = 0) -> Tensor:
    """This rank's piece of ``value``."""
    own = value.chunk(RANKS, dim)[dist.get_rank()].detach().clone().requires_grad_(value.requires_grad)
    return spmd.assert_type(own, {"tp": S(dim)})


def whole(value: Tensor) -> Tensor:
    """All of ``value``, on every rank."""
    return spmd.assert_type(value.detach().clone().requires_grad_(value.requires_grad), {"tp": R})


def addend(value: Tensor) -> Tensor:
    """This rank's addend of ``value``."""
    noise = drawn(*value.shape, seed=97).to(value.dtype)
    own = noise if dist.get_rank() == 0 else value.detach() - noise
    return spmd.assert_type(own.clone().requires_grad_(value.requires_grad), {"tp": P})


@dataclass(frozen=True)
class Case:
    """A program, and the value that one device computes for it.

    ``code``  what a wrong program is told; it need not be said what that computes.
    """

    name: str
    program: Callable[[], Any]
    meant: Any = None
    code: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Found:
    """A result on one rank."""

    type: TensorType
    value: Tensor


def outcomes(program: Callable[[], Any], *, local: bool) -> list[list[Found] | str]:
    """What every rank gets, or the code of what it is told."""
    return InProcessWorld(RANKS).run(_on_a_rank, program, local)


def _on_a_rank(program: Callable[[], Any], local: bool) -> list[Found] | str:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    with spmd.set_current_mesh(mesh):
        with spmd.typecheck(local=local):
            try:
                made = program()
                results = list(made) if isinstance(made, (tuple, list)) else [made]
                types = [spmd.typeof(result).type for result in results]
            except SpmdTypeError as error:
                return error.code
        return [Found(type, result.detach()) for type, result in zip(types, results, strict=True)]


def denoted(found: list[Found]) -> Tensor:
    """The value that the ranks' tensors mean; of a type that says nothing, what rank 0 has."""
    type, values = found[0].type, [one.value for one in found]
    (axis,) = type.axes
    cut, scale = partition_spec_get_shard(type.spec, axis), type.exponent(axis)
    if cut is not None:
        value = torch.cat(values, cut.dim)
    elif type.get(axis).is_extremum:
        stacked = torch.stack(values)
        value = stacked.amax(0) if "max" in repr(type.get(axis)) else stacked.amin(0)
    elif type.get(axis) is P("norm"):
        value = torch.stack(values).square().sum(0).sqrt()
    elif type.is_partial(axis):
        value = torch.stack(values).sum(0)
    else:
        value = values[0]
        assert type.is_equal(axis), f"{type} says nothing of its value"
        for other in values[1:]:
            torch.testing.assert_close(other, value)
    return value if not scale else value / float(RANKS) ** scale


def judge(case: Case, *, local: bool = False) -> None:
    """Fail where a right program is refused or computes something else, and where a wrong one is not told its code."""
    found = outcomes(case.program, local=local)
    if case.code:
        assert found == [case.code] * RANKS, f"{case}: {found}"
        return
    ranks = [one for one in found if not isinstance(one, str)]
    assert len(ranks) == RANKS, f"{case} is right, and refused: {found}"
    meant = list(case.meant) if isinstance(case.meant, (tuple, list)) else [case.meant]
    for at, wanted in enumerate(meant):
        torch.testing.assert_close(denoted([one[at] for one in ranks]), wanted)
