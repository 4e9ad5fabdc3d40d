"""Engines of DeepSpeed: what they wrap is typed, and what becomes of its gradients inside of them is left alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector
from shardwise.interop.torch_compat import fake_world

from .helpers import place


class Engine(nn.Module):
    """What stands for DeepSpeed's: gradients are averaged in a buffer, of which a rank steps its part."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.seq_data_parallel_group = dist.group.WORLD
        self.buffer = torch.zeros(sum(one.numel() for one in module.parameters()))
        at = 0
        for parameter in module.parameters():
            room = self.buffer.narrow(0, at, parameter.numel())
            parameter.register_post_accumulate_grad_hook(functools.partial(self.keep, room))
            at += parameter.numel()

    @staticmethod
    def keep(room: torch.Tensor, parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        room.copy_(parameter.grad.flatten())

    def forward(self, *args: Any) -> Any:
        return self.module(*args)

    def norm(self) -> torch.Tensor:
        dist.all_reduce(self.buffer)
        own = self.buffer.chunk(dist.get_world_size())[dist.get_rank()]
        square = own.square().sum()
        dist.all_reduce(square)
        return square


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Engine]]:
    module: Any = ModuleType("deepspeed.runtime.engine")
    own = type("DeepSpeedEngine", (Engine,), {"__init__": lambda self, module: Engine.__init__(self, module)})
    module.DeepSpeedEngine = own
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with fake_world(0, 4):
        yield own


def trained(engine: type[Engine], *, expert: bool = False) -> tuple[nn.Module, torch.Tensor, tuple[Finding, ...]]:
    found = Collector()
    with checking(strict=False, local=True, collect=found, observe=True):
        model = nn.Linear(4, 2)
        if expert:
            model.bias.group_name = "ep_size_2"  # type: ignore[assignment]
        wrapped, data = engine(model), torch.randn(3, 4)
        loss = wrapped(data).square().mean()
        loss.backward()
        wrapped.norm()
    return model, loss, found.result().findings


def test_what_an_engine_wraps_is_equal_and_what_it_gets_is_each_ranks_own(engine: type[Engine]) -> None:
    model, loss, _ = trained(engine)
    dp = dist.group.WORLD
    assert place(model.weight, dp) == "R"
    assert place(loss, dp) == "V"


def test_nothing_is_said_of_experts(engine: type[Engine]) -> None:
    assert place(trained(engine, expert=True)[0].bias, dist.group.WORLD) == ""


def test_what_an_engine_does_with_gradients_is_no_finding(engine: type[Engine]) -> None:
    assert trained(engine)[2] == ()
