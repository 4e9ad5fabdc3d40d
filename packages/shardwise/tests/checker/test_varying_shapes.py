"""Shapes that values decide: harmless in themselves, a warning where ranks hand them to one collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import R, S, V
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused

Use = Callable[[torch.Tensor], torch.Tensor]


def told(program: Callable[[], Any], **options: Any) -> tuple[Finding, ...]:
    collector = Collector()
    with checking(collect=collector, **options):
        program()
    return collector.result().findings


def values(letter: str) -> torch.Tensor:
    """Eight whole numbers, half of them above 2."""
    return spmd.assert_type(torch.tensor([0, 1, 2, 3, 1, 2, 3, 4]), {"tp": {"V": V, "R": R}[letter]})


DECIDED: dict[str, Use] = {
    "x[mask]": lambda x: x[x > 2],
    "x[rows, mask]": lambda x: x.view(2, 4)[:, x[:4] > 0].t(),
    "masked_select": lambda x: x.masked_select(x > 2),
    "nonzero": lambda x: x.nonzero(),
    "nonzero as a tuple": lambda x: torch.nonzero(x, as_tuple=True)[0],
    "argwhere": torch.argwhere,
    "where of a condition": lambda x: torch.where(x > 2)[0],
    "unique": torch.unique,
    "counts of unique": lambda x: x.unique(return_counts=True)[1],
    "unique along a dim": lambda x: x.view(4, 2).unique(dim=0),
    "unique_consecutive": torch.unique_consecutive,
    "repeats": lambda x: x.repeat_interleave(x, dim=0),
    "repeats alone": torch.repeat_interleave,
    "bincount": torch.bincount,
    "one_hot": lambda x: F.one_hot(x).t().contiguous(),
}


@pytest.mark.parametrize("name", DECIDED)
def test_a_length_that_varying_values_decide_is_told_where_it_is_gathered(tp_mesh: Any, name: str) -> None:
    (finding,) = told(lambda: spmd.all_gather(DECIDED[name](values("V")), "tp", src=S(0), dst=R))
    assert (finding.code, finding.op, finding.axis) == ("SW117", "all_gather", "tp")
    assert "dim 0" in finding.message
    (operand,) = finding.operands
    assert operand.origin[0].text == "its own length on each rank since this"
    assert "split sizes" in finding.help[0]


@pytest.mark.parametrize("name", DECIDED)
def test_a_length_that_equal_values_decide_is_silent(tp_mesh: Any, name: str) -> None:
    def program() -> None:
        made = DECIDED[name](values("R"))
        piece = spmd.convert(made.repeat(4, *[1] * (made.ndim - 1)), "tp", src=R, dst=S(0))
        spmd.all_gather(piece, "tp", src=S(0), dst=R)

    assert not told(program)


PENDING: dict[str, tuple[str, Use]] = {
    "x[mask]": ("SW112", lambda x: x[x > 0]),
    "masked_select": ("SW112", lambda x: x.masked_select(x > 0)),
    "nonzero": ("SW112", torch.nonzero),
    "nonzero as a tuple": ("SW112", lambda x: x.nonzero(as_tuple=True)),
    "argwhere": ("SW112", torch.argwhere),
    "where of a condition": ("SW112", torch.where),
    "unique": ("SW112", torch.unique),
    "unique_consecutive": ("SW112", torch.unique_consecutive),
    "repeats": ("SW114", lambda x: torch.ones(4).repeat_interleave(x)),
    "repeats alone": ("SW112", torch.repeat_interleave),
    "bincount": ("SW112", torch.bincount),
    "one_hot": ("SW112", F.one_hot),
}


@pytest.mark.parametrize("name", PENDING)
def test_a_length_that_a_pending_sum_would_decide_is_an_error(tp_mesh: Any, name: str) -> None:
    x = make("P", 4, dtype=torch.long)
    code, decided = PENDING[name]
    with typecheck(), refused(code, "partial"):
        decided(x)


def test_a_mask_that_is_a_pending_sum_is_an_error(tp_mesh: Any) -> None:
    mask = make("P", 4, dtype=torch.uint8)
    with typecheck(), refused("SW114", "mask", "partial"):
        torch.ones(4)[mask]


KEPT: dict[str, Use] = {
    "element by element": lambda y: (y * 2).relu() + 1,
    "in place": lambda y: y.mul_(2),
    "row by row": lambda y: F.linear(y.float().unsqueeze(1), torch.ones(3, 1)),
    "regrouped": lambda y: y.view(-1, 1).flatten(),
    "looked up": lambda y: torch.arange(10)[y],
    "read as addends": lambda y: spmd.reinterpret(y, "tp", src=V, dst=V),
    "a buffer like it": torch.zeros_like,
    "cast": lambda y: y.float().detach(),
}


@pytest.mark.parametrize("name", KEPT)
def test_the_length_is_followed(tp_mesh: Any, name: str) -> None:
    x = values("V")
    (finding,) = told(lambda: spmd.all_gather(KEPT[name](x[x > 2]), "tp", src=S(0), dst=R))
    assert finding.code == "SW117"


LOST: dict[str, Use] = {
    "summed": lambda y: y.sum(0, keepdim=True),
    "padded": lambda y: F.pad(y, (0, 8 - len(y))),
    "one entry": lambda y: y[:1],
    "the largest": lambda y: y.topk(2).values,
    "laid side by side": lambda y: torch.cat([y, y]),
    "written into a buffer": lambda y: torch.zeros(8, dtype=y.dtype).index_add_(0, torch.arange(len(y)), y),
    "said to be even": lambda y: spmd.assert_type(y, {"tp": S(0)}, even=True),
}


@pytest.mark.parametrize("name", LOST)
def test_what_has_another_length_is_silent(tp_mesh: Any, name: str) -> None:
    x = values("V")
    assert not told(lambda: spmd.all_gather(LOST[name](x[x > 2]), "tp", src=S(0), dst=R))


def test_split_sizes_make_a_ragged_exchange_right(tp_mesh: Any) -> None:
    def program() -> None:
        x = values("V")
        kept = x[x > 2]
        spmd.all_gather(kept, "tp", src=S(0), dst=R, split_sizes=[3, 3, 0, 5])
        spmd.all_to_all(kept, "tp", src=S(0), dst=S(0), input_split_sizes=[1, 2, 0, 0], output_split_sizes=[1] * 4)

    assert not told(program)


def test_a_collective_over_another_axis_is_silent_and_keeps_the_length(mesh: Any) -> None:
    x = spmd.assert_type(torch.tensor([0, 1, 2, 3]), {"dp": V, "tp": R})
    y = spmd.assert_type(torch.ones(4), {"dp": V, "tp": V})

    def program() -> torch.Tensor:
        kept = y[x > 1]
        return spmd.all_reduce(kept, "tp", src=V, dst=R)

    assert not told(program)
    (finding,) = told(lambda: spmd.all_gather(program(), "dp", src=S(0), dst=R))
    assert (finding.code, finding.axis) == ("SW117", "dp")


def test_without_a_collector_it_is_a_python_warning(tp_mesh: Any) -> None:
    x = values("V")
    with typecheck(), pytest.warns(UserWarning, match=r"SW117.*tp"):
        spmd.all_gather(x[x > 2], "tp", src=S(0), dst=R)


def test_globally_typed_shards_have_their_own_word_for_it(tp_mesh: Any) -> None:
    def program() -> None:
        x = spmd.assert_type(torch.arange(8), {"tp": S(0)})
        spmd.all_gather(x[x > 2], "tp", src=S(0), dst=R)

    assert [one.code for one in told(program, local=False)] == ["SW417"]


@pytest.mark.parametrize(
    "read", [lambda x: x.shape[0], lambda x: x.size(0), lambda x: x.numel(), lambda x: x.size()[0]]
)
def test_a_size_that_varying_values_decide_varies_itself(tp_mesh: Any, read: Any) -> None:
    with typecheck():
        x, equal = make("V", 6), make("R", 6)
        assert place(equal * read(x[x > 0])) == "V"
        assert place(equal * read(equal[equal > 0])) == "R"
        assert place(equal * read(x)) == "R"
