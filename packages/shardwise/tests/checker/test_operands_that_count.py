"""Which arguments of a call its type follows from: none is left out because of a number beside it, or of ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shardwise as spmd
from shardwise import P, R, V
from shardwise.checker import typecheck
from shardwise.types import SpmdTypeError


@pytest.mark.parametrize("loss", [F.smooth_l1_loss, torch._C._nn.smooth_l1_loss])
def test_a_beta_that_multiplies_nothing_hides_no_operand(tp_mesh: Any, loss: Callable[..., Tensor]) -> None:
    with typecheck():
        target = spmd.assert_type(torch.ones(4), {"tp": R})
        with pytest.raises(SpmdTypeError, match="SW112"):
            loss(spmd.assert_type(torch.randn(4), {"tp": P}), target, beta=0.0)
        varying = loss(spmd.assert_type(torch.randn(4), {"tp": V}), target, beta=0.0)
        assert spmd.get_local_type(varying) == {spmd.normalize_axis("tp"): V}


FACTORIES: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, out: torch.full((4,), x, out=out),  # type: ignore[call-overload]
    lambda x, out: torch.linspace(x, 1.0, 4, out=out),
    lambda x, out: torch.logspace(x, 1.0, 4, out=out),
]


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_factory_that_writes_what_varies_makes_its_destination_vary(
    tp_mesh: Any, factory: Callable[[Tensor, Tensor], Tensor]
) -> None:
    with typecheck():
        made = factory(spmd.assert_type(torch.tensor(0.5), {"tp": V}), torch.empty(4))
        assert spmd.get_local_type(made) == {spmd.normalize_axis("tp"): V}


def test_a_factory_that_writes_one_pending_end_adds_the_other_once_per_rank(tp_mesh: Any) -> None:
    with typecheck(), pytest.raises(SpmdTypeError, match="SW113"):
        torch.linspace(spmd.assert_type(torch.tensor(0.5), {"tp": P}), 1.0, 4, out=torch.empty(4))


def test_a_factory_that_rounds_takes_no_pending_ends(tp_mesh: Any) -> None:
    with typecheck():
        ends = [spmd.assert_type(torch.tensor(end), {"tp": P}) for end in (0.5, 2.5)]
        assert spmd.get_local_type(torch.linspace(*ends, 4)) == {spmd.normalize_axis("tp"): P}
        with pytest.raises(SpmdTypeError, match=r"SW112 .*linspace"):
            torch.linspace(*ends, 4, dtype=torch.int64)
