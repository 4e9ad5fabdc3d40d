"""Which calls need shards of one length? Those that the numbers refute where three ranks' shards differ in length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import R, S
from shardwise.checker import typecheck
from shardwise.mesh.axis import MeshAxis
from shardwise.types.spec import partition_spec_get_shard

AXIS = MeshAxis.of(3, 1)


@dataclass(frozen=True)
class Case:
    """A call on a tensor of ``shape``, cut on ``dim`` into pieces of ``lengths``; its result is cut on ``after``."""

    name: str
    call: Callable[..., Any]
    shape: tuple[int, ...]
    lengths: tuple[int, ...]
    dim: int = 0
    after: int = 0

    def __str__(self) -> str:
        return self.name


HOLDS = [
    Case("element by element", torch.tanh, (7, 2), (4, 2, 1)),
    Case("rows", lambda x: x.softmax(-1), (7, 2), (4, 2, 1)),
    Case("another dim", lambda x: x.transpose(0, 1).contiguous(), (7, 2), (4, 2, 1), after=1),
    Case("flatten", torch.flatten, (7, 2), (4, 2, 1)),
    Case("flatten two of three", lambda x: x.flatten(1), (2, 7, 3), (4, 2, 1), 1, 1),
    Case("view of rows", lambda x: x.view(-1, x.shape[-1]), (7, 2, 3), (4, 2, 1)),
    Case("view that forgets a dim of one", lambda x: x.view(-1, 4), (7, 1, 4), (4, 2, 1)),
    Case("unflatten into groups", lambda x: x.unflatten(0, (-1, 2)), (8, 3), (4, 2, 2)),
    Case("view in groups", lambda x: x.view(-1, 2, 3), (8, 3), (4, 2, 2)),
    Case("all in one group", lambda x: x.view(-1, 4), (8,), (4, 4, 0)),
    Case("view as other bits", lambda x: x.view(torch.complex128), (2, 8), (4, 2, 2), 1, 1),
    Case("repeat_interleave", lambda x: x.repeat_interleave(2, 0), (7, 2), (4, 2, 1)),
    Case("repeat_interleave flat", lambda x: x.repeat_interleave(2), (7, 2), (4, 2, 1)),
    Case("pixel_shuffle of channels", lambda x: F.pixel_shuffle(x, 2), (2, 16, 2, 2), (8, 4, 4), 1, 1),
    Case("pixel_unshuffle of rows", lambda x: F.pixel_unshuffle(x, 2), (1, 1, 8, 2), (4, 2, 2), 2, 2),
    Case("unfold of channels", lambda x: F.unfold(x, 2), (1, 7, 3, 3), (4, 2, 1), 1, 1),
    Case("squeeze of another dim", lambda x: x.squeeze(1), (7, 1, 2), (4, 2, 1)),
]
NEEDS_EVEN = [
    Case("unflatten into two", lambda x: x.unflatten(0, (2, -1)), (8, 3), (4, 2, 2)),
    Case("view as half and half", lambda x: x.view(2, -1, 3), (8, 3), (4, 2, 2)),
    Case("windows with a rest", lambda x: x.unfold(0, 2, 2), (7, 2), (4, 2, 1)),
    Case("squeeze of all dims", torch.squeeze, (7, 2), (4, 2, 1)),
    Case("squeeze of this dim", lambda x: x.squeeze(0), (7, 2), (4, 2, 1)),
]


def fits_together(case: Case) -> bool:
    """True if the ranks' results in order are the result of the whole, and so are the gradients."""
    x = torch.randn(case.shape, dtype=torch.float64, requires_grad=True)
    pieces = [piece.detach().requires_grad_() for piece in x.split(case.lengths, case.dim)]
    whole = case.call(x)
    cotangent = torch.randn_like(whole)
    try:
        parts = [case.call(piece) for piece in pieces]
        if not torch.equal(torch.cat(parts, case.after), whole):
            return False
        cuts = cotangent.split([part.shape[case.after] for part in parts], case.after)
    except (RuntimeError, IndexError):
        return False
    if not whole.requires_grad:
        return True
    whole.backward(cotangent)
    for part, cut in zip(parts, cuts, strict=True):
        part.backward(cut)
    return torch.allclose(torch.cat([piece.grad for piece in pieces], case.dim), x.grad)


def booked(case: Case, *, even: bool) -> torch.Tensor:
    """The first rank's result, by the rules."""
    piece = torch.randn(case.shape, dtype=torch.float64).split(case.lengths, case.dim)[0].clone()
    with spmd.set_current_mesh({"tp": AXIS}), typecheck(local=False):
        return case.call(spmd.assert_type(piece, {"tp": S(case.dim)}, even=even))


@pytest.mark.parametrize("case", HOLDS, ids=str)
def test_pieces_of_any_length_fit_together_again(case: Case) -> None:
    assert fits_together(case)
    type = spmd.typeof(booked(case, even=False)).type
    assert partition_spec_get_shard(type.spec, AXIS) == S(case.after)
    assert type.uneven == {AXIS}


@pytest.mark.parametrize("case", NEEDS_EVEN, ids=str)
def test_what_needs_shards_of_one_length_is_refused_for_others(case: Case) -> None:
    assert not fits_together(case)
    with pytest.raises(spmd.SpmdTypeError) as caught:
        booked(case, even=False)
    assert caught.value.code == "SW417"
    assert "even=True" in " ".join(caught.value.help)
    assert not spmd.typeof(booked(case, even=True)).type.uneven


def test_operands_that_share_a_dim_have_shards_of_one_length_each() -> None:
    with spmd.set_current_mesh({"tp": AXIS}), typecheck(local=False):
        ragged = spmd.assert_type(torch.randn(4, 2), {"tp": S(0)}, even=False)
        even = spmd.assert_type(torch.randn(4, 2), {"tp": S(0)})
        whole = spmd.assert_type(torch.randn(2, 5), {"tp": R})
        assert str(spmd.typeof(ragged * ragged.tanh())) == "f32[4@~tp, 2]"
        assert str(spmd.typeof(ragged @ whole)) == "f32[4@~tp, 5]"
        assert str(spmd.typeof(ragged + even)) == "f32[4@tp, 2]"
        assert str(spmd.typeof(ragged.sum(0))) == "f32[2] {tp: P}"


def test_every_axis_has_lengths_of_its_own() -> None:
    outer = MeshAxis.of(2, 3)
    with spmd.set_current_mesh({"dp": outer, "tp": AXIS}), typecheck(local=False):
        x = spmd.assert_type(torch.randn(8, 4), {"dp": S(0), "tp": S(1)})
        spmd.assert_type(x, {"tp": S(1)}, even=False)
        assert x.unflatten(0, (2, -1)).shape[0] == 2
        assert spmd.typeof(x.transpose(0, 1)).type.uneven == {AXIS}
        with pytest.raises(spmd.SpmdTypeError, match="SW417"):
            x.unflatten(1, (2, -1))
