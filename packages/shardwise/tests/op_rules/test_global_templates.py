"""A tensor that only gives its shape: where it is cut the result is, against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types import SpmdTypeError
from shardwise.types.placement import I, R, Shard

from .global_ruleset import ask, differences, shown
from .values import real

torch.set_num_threads(1)

CASES: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    ("expand_as", lambda x, y: x.expand_as(y.detach()), (real(5, 1), real(4, 5, 4))),
    ("expand_as of whole dims", lambda x, y: x.expand_as(y), (real(5, 4), real(4, 5, 4))),
    ("view_as", lambda x, y: x.view_as(y), (real(4, 6), real(4, 3, 2))),
    ("reshape_as", lambda x, y: x.reshape_as(y), (real(4, 6), real(24))),
    ("fill", lambda x: torch.fill(x.detach(), 2.0), (real(4, 6),)),
    ("fill with a tensor", lambda x, y: torch.fill(x.detach(), y), (real(4, 6), real())),
]


@pytest.mark.parametrize(("name", "fn", "tensors"), CASES, ids=[case[0] for case in CASES])
def test_templates(name: str, fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    assert shown(differences(fn, *tensors)) == []


def test_a_whole_tensor_does_not_take_the_shape_of_a_shard() -> None:
    """Locally the shapes fit, but the first rank's rows would be paired with all ranks' columns."""
    refusal = ask(lambda x, y: x.view_as(y), (real(2, 6), real(2, 3, 2)), (R, Shard(0)))
    assert isinstance(refusal, str)
    assert refusal.startswith("SW402")
    other = ask(lambda x, y: x.view_as(y), (real(2, 6), real(2, 3, 2)), (Shard(0), Shard(2)))
    assert isinstance(other, str)
    assert other.startswith("SW401")


def test_what_every_rank_repeats_is_not_copied_into_a_shard() -> None:
    """Each rank's gradient would be that of its own copies, which are addends."""
    with set_current_mesh({"tp": MeshAxis.of(2, 1)}), typecheck(local=False):
        shard = spmd.assert_type(real(4, 2).detach(), {"tp": Shard(1)})
        bias = spmd.assert_type(torch.zeros(4, 1), {"tp": I})
        assert spmd.typeof(bias.expand_as(shard)).type is spmd.typeof(shard).type
        with pytest.raises(
            SpmdTypeError, match=r"SW101 .* copies .*bias.*, invariant over tp, into the shards of a dim"
        ):
            bias.requires_grad_().expand_as(shard)
        weight = spmd.assert_type(torch.zeros(4, 1, requires_grad=True), {"tp": R})
        assert spmd.typeof(weight.expand_as(shard)).type is spmd.typeof(shard).type
