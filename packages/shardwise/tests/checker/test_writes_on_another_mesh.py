"""In-place calls on what keeps to the experts' mesh, under the dense one, whose axes it sees folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import MeshAxis, P, R, S, V
from shardwise.checker import typecheck
from shardwise.worlds.world import InProcessWorld

from .helpers import refused

DENSE = {"dp": MeshAxis.of(2, 4), "cp": MeshAxis.of(2, 2), "tp": MeshAxis.of(2, 1)}
EXPERTS = {"dp": MeshAxis.of(2, 4), "ep": MeshAxis.of(4, 1)}


def weight() -> torch.Tensor:
    with spmd.set_current_mesh(EXPERTS):
        return spmd.assert_type(torch.rand(2, 4), {"dp": R, "ep": S(0)})


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "by a number": lambda x, other: x.mul_(0.5),
    "an addend": lambda x, other: x.add_(other),
    "through a view": lambda x, other: x.detach().add_(other),
    "an addend, seen by a view": lambda x, other: (x.t(), x.add_(other)),
    "a list of addends": lambda x, other: torch._foreach_add_([x], [other]),
    "a result": lambda x, other: torch.add(other, other, out=x),
}


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_destination_keeps_its_axes(write: Callable[[Any, Any], object], local: bool) -> None:
    x = weight()
    before = str(spmd.typeof(x))
    with spmd.set_current_mesh(DENSE), typecheck(local=local):
        write(x, spmd.assert_type(torch.rand(2, 4), {"dp": R}, spmd.PartitionSpec(("cp", "tp"), None)))
    assert str(spmd.typeof(x)) == before


@pytest.mark.parametrize(
    ("addend", "code"),
    [
        ({"dp": V, "cp": V, "tp": V}, "SW120"),
        ({"dp": R, "cp": P, "tp": P}, "SW110"),
        ({"dp": P, "cp": V, "tp": V}, "SW113"),
    ],
    ids=["varies over dp", "is a sum over cp and tp", "is a sum over dp"],
)
def test_what_it_cannot_hold_is_refused(addend: dict[str, Any], code: str) -> None:
    x = weight().requires_grad_()
    with spmd.set_current_mesh(DENSE), typecheck(), torch.no_grad(), refused(code):
        x.add_(spmd.assert_type(torch.rand(2, 4), addend))


def updated() -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's piece of a weight after an update under the dense mesh, and what one device would have there."""
    dense = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    experts = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "ep"))
    torch.manual_seed(0)
    whole, step = torch.randn(8, 4), torch.randn(8, 4)
    at = experts.get_local_rank("ep")
    with typecheck(local=False):
        with spmd.set_current_mesh(experts):
            x = spmd.assert_type(whole.chunk(4)[at].clone(), {"dp": R, "ep": S(0)})
        with spmd.set_current_mesh(dense):
            piece = step.chunk(2)[dense.get_local_rank("cp")].chunk(2)[dense.get_local_rank("tp")].clone()
            spmd.assert_type(piece, {"dp": R}, spmd.PartitionSpec(("cp", "tp"), None))
            x.add_(piece)
        with spmd.set_current_mesh(experts):
            x = spmd.all_gather(x, "ep", src=S(0), dst=R)
    return x, whole + step


def test_ranks_compute_what_one_device_computes() -> None:
    for found, wanted in InProcessWorld(8).run(updated):
        assert torch.equal(found, wanted)
