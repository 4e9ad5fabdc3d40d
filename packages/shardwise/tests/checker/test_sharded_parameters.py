"""What fully_shard's parameters are typed as: replicate where FSDP gathers them, as declared elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import shardwise as spmd
from shardwise import I, R, S, V
from shardwise.checker import typecheck
from shardwise.types.placement import Shard

from .helpers import refused

fsdp = pytest.importorskip("torch.distributed.fsdp")


def seen_types(model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """The types of the parameters as they are during forward."""
    types: dict[str, Any] = {}
    hook = model.register_forward_hook(
        lambda module, *_: types.update({name: spmd.get_local_type(p) for name, p in module.named_parameters()})
    )
    model(x)
    hook.remove()
    return types


@pytest.mark.parametrize("declared", [I, R, S(0)])
def test_a_gathered_parameter_is_replicate_over_dp_and_as_declared_over_tp(mesh: Any, declared: Any) -> None:
    with typecheck():
        model = nn.Linear(4, 4, bias=False)
        spmd.assert_type(model.weight, {"tp": declared})
        fsdp.fully_shard(model, mesh=mesh["dp"])
        x = spmd.assert_type(torch.randn(2, 4), {"dp": V, "tp": I if declared is I else R})
        types = seen_types(model, x)
    place = V if isinstance(declared, Shard) else declared
    assert types["weight"] == {spmd.normalize_axis("dp"): R, spmd.normalize_axis("tp"): place}


def test_a_model_that_was_sharded_before_the_check_is_replicate_over_the_axis_of_fsdp(mesh: Any) -> None:
    model = nn.Linear(4, 4)
    fsdp.fully_shard(model, mesh=mesh["dp"])
    with spmd.set_current_mesh(mesh["dp"]), typecheck():
        nn.Parameter(torch.zeros(()))
        out = model(spmd.assert_type(torch.randn(2, 4), {"dp": V}))
        assert spmd.get_axis_local_type(out, "dp") is V
        assert seen_types(model, spmd.assert_type(torch.randn(2, 4), {"dp": V}))["bias"] == {
            spmd.normalize_axis("dp"): R
        }


def test_an_axis_that_nobody_declared_is_missing(mesh: Any) -> None:
    with typecheck():
        model = nn.Linear(4, 4)
        fsdp.fully_shard(model, mesh=mesh["dp"])
        x = spmd.assert_type(torch.randn(2, 4), {"dp": V, "tp": R})
        with refused("SW103", "tp"):
            model(x)


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_parameters_of_the_older_wrapper_are_gathered_too(mesh: Any, use_orig_params: bool) -> None:
    with spmd.set_current_mesh(mesh["dp"]), typecheck():
        inner = nn.Linear(4, 4)
        model = fsdp.FullyShardedDataParallel(
            inner, process_group=mesh.get_group("dp"), use_orig_params=use_orig_params, device_id=torch.device("cpu")
        )
        out = model(spmd.assert_type(torch.randn(2, 4), {"dp": V}))
        assert spmd.get_axis_local_type(out, "dp") is V
        spmd.reinterpret(out.sum(), "dp", src=V, dst=spmd.P).backward()


def test_a_dtensor_that_is_gathered_is_replicate_over_the_axis_of_fsdp_when_it_is_left(mesh: Any) -> None:
    tensor = pytest.importorskip("torch.distributed.tensor")

    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(
                tensor.distribute_tensor(torch.randn(8, 4), mesh["tp"], [tensor.Shard(0)], src_data_rank=None)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = spmd.get_local_type(self.weight.to_local())
            return x @ self.weight.to_local().t()

    with typecheck():
        model = Cut()
        fsdp.fully_shard(model, mesh=mesh["dp"])
        out = model(spmd.assert_type(torch.randn(2, 4), {"dp": V, "tp": R}))
    assert model.seen == {spmd.normalize_axis("dp"): R, spmd.normalize_axis("tp"): V}
    assert spmd.get_axis_local_type(out, "dp") is V


Change = Callable[[Any, int], object]


def _each(model: nn.Module, change: Callable[[Any], object]) -> None:
    for parameter in model.parameters():
        change(parameter.grad)


FSDP_STEPS: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], Change, Change, int | None]] = [
    ("mean", lambda y: y.mean(), lambda m, n: None, lambda m, n: None, 0),
    ("sum", lambda y: y.sum(), lambda m, n: None, lambda m, n: None, -1),
    (
        "sum, clipped",
        lambda y: y.sum(),
        lambda m, n: None,
        lambda m, n: nn.utils.clip_grad_norm_(m.parameters(), 2.0),
        -1,
    ),
    ("sum, not divided", lambda y: y.sum(), lambda m, n: m.set_gradient_divide_factor(1.0), lambda m, n: None, 0),
    ("mean, not divided", lambda y: y.mean(), lambda m, n: m.set_gradient_divide_factor(1.0), lambda m, n: None, 1),
    ("by a hook", lambda y: y.sum(), lambda m, n: m.set_all_reduce_hook(lambda grad: None), lambda m, n: None, None),
    ("sum, multiplied", lambda y: y.sum(), lambda m, n: None, lambda m, n: _each(m, lambda g: g.mul_(n)), 0),
    ("mean, divided", lambda y: y.mean(), lambda m, n: None, lambda m, n: _each(m, lambda g: g.div_(n)), -1),
    (
        "mean, locally",
        lambda y: y.mean(),
        lambda m, n: None,
        lambda m, n: _each(m, lambda g: g.to_local().div_(n)),
        -1,
    ),
    ("by who knows what", lambda y: y.mean(), lambda m, n: None, lambda m, n: _each(m, lambda g: g.div_(8)), None),
    ("halved", lambda y: y.sum(), lambda m, n: None, lambda m, n: _each(m, lambda g: g.mul_(0.5)), -1),
    (
        "replaced",
        lambda y: y.sum(),
        lambda m, n: None,
        lambda m, n: _each(m, lambda g: g.copy_(torch.ones_like(g))),
        None,
    ),
]


@pytest.mark.parametrize(("loss", "before", "after", "exponent"), [pytest.param(*s[1:], id=s[0]) for s in FSDP_STEPS])
def test_the_scale_of_what_fully_shard_hands_out_is_followed_to_the_step(
    mesh: Any, loss: Any, before: Change, after: Change, exponent: int | None
) -> None:
    """No parameter has been declared: the wrapper says enough."""
    model = nn.Linear(4, 4)
    with spmd.set_current_mesh(mesh["dp"]), typecheck(local=False):
        fsdp.fully_shard(model, mesh=mesh["dp"])
        ranks = torch.distributed.get_world_size(mesh.get_group("dp"))
        before(model, ranks)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loss(model(spmd.assert_type(torch.randn(2, 4), {"dp": S(0)}))).backward()
        after(model, ranks)
        if exponent:
            with refused("SW616", "dp"):
                optimizer.step()
        else:
            optimizer.step()
