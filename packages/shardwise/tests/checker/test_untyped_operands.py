"""Is nothing assumed where nothing is known? A call with an untyped operand gives a result that is not known either."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

from shardwise import I, P, R, S, assert_type, set_current_mesh
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.interop.tensors.tagging import type_of
from shardwise.types.placement import PerMeshAxisSpmdType
from shardwise.worlds.fake import fake_world

Call = Callable[[Tensor, Tensor], Tensor]


def reduced(u: Tensor) -> Tensor:
    u = u.clone()
    dist.all_reduce(u)
    return u


def gathered(u: Tensor) -> Tensor:
    out = torch.empty(8, 4)
    dist.all_gather_into_tensor(out, u)
    return out[:4]


def written(destination: Tensor, u: Tensor) -> Tensor:
    destination[1:] = u[1:]
    return destination


def row(u: Tensor) -> Tensor:
    return (u[0] * 0).long()


ATTENTION = F.scaled_dot_product_attention
CALLS: dict[str, Call] = {
    "add": lambda u, x: x + u,
    "add, untyped first": lambda u, x: u + x,
    "mul": lambda u, x: u * x,
    "matmul": lambda u, x: u @ x,
    "matmul, untyped second": lambda u, x: x @ u,
    "linear": lambda u, x: F.linear(u, x),
    "bias": lambda u, x: F.linear(x, x, u[0]),
    "addmm": lambda u, x: torch.addmm(u, x, x),
    "einsum": lambda u, x: torch.einsum("ij,jk->ik", u, x),
    "condition": lambda u, x: torch.where(u > 0, x, x),
    "mask": lambda u, x: x.masked_fill(u > 0, 0.0),
    "index": lambda u, x: x[row(u)],
    "embedding": lambda u, x: F.embedding(row(u), x),
    "gather": lambda u, x: x.gather(1, (u * 0).long()),
    "scatter": lambda u, x: x.scatter(1, (u * 0).long(), x),
    "one of a list": lambda u, x: torch.cat([x, x, u], 1),
    "list of lists": lambda u, x: torch.stack([torch.cat([u, x], 1), torch.cat([x, x], 1)]),
    "attention": lambda u, x: ATTENTION(x[None], u[None], x[None]),
    "attention mask": lambda u, x: ATTENTION(x[None], x[None], x[None], attn_mask=u > 0),
    "loss": lambda u, x: F.mse_loss(x, u, reduction="none"),
    "lerp": lambda u, x: torch.lerp(x, x, u),
    "clamp": lambda u, x: torch.clamp(x, min=u),
    "foreach": lambda u, x: torch._foreach_add([x], [u])[0],
    "dropout": lambda u, x: F.dropout(u) + x,
    "random like it": lambda u, x: u.sigmoid().bernoulli() * x,
    "view": lambda u, x: u.view(2, 8).T.reshape(4, 4) + x,
    "numpy": lambda u, x: torch.from_numpy(u.numpy()).clone() + x,
    "parameter": lambda u, x: torch.nn.Parameter(u) * x,
    "vmap": lambda u, x: torch.vmap(torch.mul)(u, x),
    "checkpoint": lambda u, x: checkpoint(torch.mul, u, x, use_reentrant=False),
    "in place": lambda u, x: (x * 1).add_(u),
    "a part in place": lambda u, x: written(x * 1, u),
    "in place into zeros": lambda u, x: torch.zeros(4, 4).add_(u) + x,
    "a part of zeros": lambda u, x: written(torch.zeros(4, 4), u) + x,
    "into empty memory": lambda u, x: torch.empty_like(x).copy_(u) + x,
    "into empty memory of its own": lambda u, x: torch.empty(4, 4).copy_(u) + x,
    "out": lambda u, x: torch.add(x, u, out=torch.empty(4, 4)),
    "collective of it": lambda u, x: reduced(u) * x,
    "gathered": lambda u, x: gathered(u) * x,
}
PLACES: list[PerMeshAxisSpmdType] = [R, I, S(0), P]


@pytest.fixture(scope="module")
def mesh():
    with fake_world(0, 2):
        yield init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_result_of_an_untyped_operand_is_unknown_and_no_finding_rests_on_it(mesh, name, place, local):
    collector = Collector()
    with set_current_mesh(mesh), checking(strict=False, local=local, collect=collector):
        x = assert_type(torch.randn(4, 4), {"dp": place})
        for _ in range(2):  # the second time the verdict is a known one
            result = CALLS[name](torch.randn(4, 4), x)
            found = type_of(result)
            assert not found.local
            assert not found.ground.is_constant
    assert [finding.headline for finding in collector.result().findings] == []


MADE_UNKNOWN = {"foreach", *(name for name in CALLS if "zeros" in name or "memory" in name)}
"""Calls after which something is unknown, and no longer without a type, when it meets what has one."""


@pytest.mark.parametrize("name", [name for name in CALLS if name not in MADE_UNKNOWN])
def test_in_strict_mode_it_is_an_error(mesh, name):
    collector = Collector()
    with set_current_mesh(mesh), checking(strict=True, collect=collector):
        x = assert_type(torch.randn(4, 4), {"dp": R})
        CALLS[name](torch.randn(4, 4), x)
    assert {finding.code for finding in collector.result().findings} == {"SW102"}


def test_a_parameter_and_a_gradient_keep_what_was_said_of_them(mesh):
    with set_current_mesh(mesh), checking(strict=False):
        weight = assert_type(torch.nn.Parameter(torch.randn(4, 4)), {"dp": R})
        with torch.no_grad():
            weight.add_(torch.randn(4, 4))
        assert type_of(weight).local == {next(iter(type_of(weight).axes)): R}
