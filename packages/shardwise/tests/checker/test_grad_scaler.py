"""A loss that torch's scaler has multiplied: gradients that are stepped with are on the scale on which they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R
from shardwise.checker import checking
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import InProcessWorld

from .on_ranks import RANKS, drawn, shard

ROWS, WEIGHT = drawn(4, 3), drawn(3, seed=1)


def step(weight: Tensor, x: Tensor, reduction: str, op: Any, *, several: bool) -> Tensor:
    optimizer, scaler = torch.optim.SGD([weight], 0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = getattr((x @ weight).square(), reduction)()
    scaled = scaler.scale([loss])[0] if several else scaler.scale(loss)
    scaled.backward()
    if op is not None:
        dist.all_reduce(weight.grad, op=op)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_([weight], 1e5)
    scaler.step(optimizer)
    scaler.update()
    return weight.detach().clone()


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_scaled_loss_is_judged_as_the_loss(reduction: str, op: Any, several: bool) -> None:
    def rank() -> tuple[Tensor, list[str]]:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        collector = Collector()
        with spmd.set_current_mesh(mesh), checking(collect=collector, local=False, strict=False):
            weight = spmd.assert_type(nn.Parameter(WEIGHT.clone()), {"tp": R})
            found = step(weight, shard(ROWS), reduction, op, several=several)
        result = collector.result()
        assert not result.lost
        return found, [one.code for one in result.findings]

    expected = step(nn.Parameter(WEIGHT.clone()), ROWS, reduction, None, several=several)
    for found, codes in InProcessWorld(RANKS).run(rank):
        is_right = bool(torch.allclose(found, expected))
        assert is_right == ((reduction, op) in [("sum", dist.ReduceOp.SUM), ("mean", dist.ReduceOp.AVG)])
        assert codes == ([] if is_right else ["SW616"])
