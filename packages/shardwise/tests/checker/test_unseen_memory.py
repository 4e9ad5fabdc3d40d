"""What changes a tensor behind the back of the operators, and what global types say of positions and pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult

from .helpers import make, operand, place, refused


def result_of(program: Callable[[], object], *, local: bool = True) -> RunResult:
    collector = Collector()
    with checking(collect=collector, local=local):
        program()
    return collector.result()


@pytest.mark.parametrize("part", ["real", "imag"])
def test_half_of_a_complex_tensor_is_written(tp_mesh: Any, part: str) -> None:
    with typecheck():
        z = make("R", dtype=torch.complex64)
        setattr(z, part, make("R"))
        assert place(z) == "R"
        setattr(z, part, make("V"))
        assert place(z) == "V"
        with refused("SW120"):
            setattr(make("R", dtype=torch.complex64), part, make("P"))
        with refused("SW120"):
            setattr(make("P", dtype=torch.complex64), part, make("R"))


def test_other_memory_has_its_own_type(tp_mesh: Any) -> None:
    with typecheck():
        x, y = make("R"), make("P")
        x.set_(y)
        assert place(x) == "P"
        y.copy_(make("P"))
        assert place(x) == "P"
    result = result_of(lambda: torch.relu(make("R").set_(make("P").untyped_storage(), 0, (4, 4), (4, 1))))
    assert [lost.what for lost in result.lost] == ["the type of a tensor that was given other memory by set_"]


def test_what_a_file_has_is_told_as_such(tp_mesh: Any, tmp_path: Path) -> None:
    torch.save(torch.ones(4), tmp_path / "weights.pt")
    result = result_of(lambda: make("R").copy_(torch.load(tmp_path / "weights.pt")))
    said = "the type of a tensor that is read of a file or a message, as by torch.load"
    assert [lost.what for lost in result.lost] == [said]


@pytest.mark.parametrize("letter", "RIVP")
def test_a_tensor_that_is_resized_has_elements_of_its_own(tp_mesh: Any, letter: str) -> None:
    with typecheck():
        assert place(make(letter).clone().resize_(4, 2)) == letter
        assert place(make(letter).clone().resize_as_(make("P"))) == letter
        x = make(letter).clone().resize_(0)
        assert place(x) == ""
    with typecheck(local=False):
        shard = spmd.assert_type(torch.ones(2, 3), {"tp": S(0)})
        for cut in (torch.ones(8, 3), torch.ones(24)):
            assert place(spmd.assert_type(cut.clone(), {"tp": R}).resize_as_(shard)) == "", "as small as a shard"
            assert place(spmd.assert_type(cut.clone(), {"tp": R}).resize_(shard.shape)) == ""
    result = result_of(lambda: make(letter).clone().resize_(40))
    assert [lost.what for lost in result.lost] == ["the type of a tensor that has been made larger by resize_"]


@pytest.mark.parametrize("write", ["copy_", "fill_"])
def test_a_storage_that_is_written_leaves_nothing_known(tp_mesh: Any, write: str) -> None:
    def program() -> None:
        x = make("R")
        row = x[0]
        storage = x.untyped_storage()
        if write == "copy_":
            storage.copy_(make("P").untyped_storage())
        else:
            storage.fill_(0)
        assert place(x) == ""
        assert place(row) == ""

    result = result_of(program)
    assert [lost.what for lost in result.lost] == ["the types of tensors whose storage was written"]
    plain = torch.zeros(4)
    plain.untyped_storage().fill_(1)


@pytest.mark.parametrize(
    ("local", "placement", "is_right"),
    [
        ("P", "sum", True),
        ("P", "max", False),
        ("P", "min", False),
        ("P", "avg", False),
        ("P(max)", "max", True),
        ("P(max)", "sum", False),
        ("P(min)", "max", False),
        ("V", "max", True),
        ("R", "max", True),
        ("R", "avg", True),
    ],
)
def test_what_is_pending_is_read_as_it_is(tp_mesh: Any, local: str, placement: str, is_right: bool) -> None:
    kinds = {"P": P, "P(max)": P("max"), "P(min)": P("min"), "V": V, "R": R}
    with typecheck():
        x = spmd.assert_type(torch.ones(4).clone(), {"tp": kinds[local]})
        if is_right:
            DTensor.from_local(x, tp_mesh, [Partial(placement)])
        else:
            with refused("SW130", "Partial"):
                DTensor.from_local(x, tp_mesh, [Partial(placement)])


def test_a_generator_that_is_suspended_does_not_pause_its_caller(tp_mesh: Any) -> None:
    def quiet() -> Iterator[int]:
        with spmd.no_typecheck():
            torch.relu(make("P"))
            yield 1
            torch.relu(make("P"))
            yield 2

    with typecheck():
        items = quiet()
        next(items)
        with refused("SW112"):
            torch.relu(make("P"))
        next(items)
        with refused("SW112"):
            torch.relu(make("P"))
        assert list(items) == []
        with refused("SW112"):
            torch.relu(make("P"))


def test_a_first_element_of_a_shard_of_one_is_not_the_first_of_all(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = operand("f32[1@tp, 4]")
        with refused("SW405"):
            x.narrow(0, 0, 1)
        with refused("SW405"):
            x[:1]
        with refused("SW405"):
            x[0]
        x.narrow(1, 0, 4)
        x[:]


@pytest.mark.parametrize("name", ["where", "nonzero", "argwhere"])
def test_positions_in_a_shard_are_not_positions(tp_mesh: Any, name: str) -> None:
    with typecheck(local=False):
        with refused("SW405"):
            getattr(torch, name)(operand("f32[2@tp, 4]") > 0)
        assert place(torch.where(operand("f32[2@tp, 4]") > 0, 1.0, 0.0)) == "V"


def gathered(dim: int) -> list[torch.Tensor]:
    x = spmd.assert_type(torch.randn(4, 4), {"tp": S(dim)})
    pieces = [torch.empty(4, 4) for _ in range(4)]
    dist.all_gather(pieces, x)
    return pieces


@pytest.mark.parametrize("dim", [0, 1])
def test_gathered_pieces_are_joined_as_they_were_cut(tp_mesh: Any, dim: int) -> None:
    with typecheck(local=False):
        pieces = gathered(dim)
        assert place(torch.cat(pieces, dim=dim)) == "R"
        assert place(torch.cat(pieces, dim=dim - 2)) == "R"
        with refused("SW223", "ranks 0, 1"):
            torch.cat(pieces[:2], dim=dim)
        with refused("SW223", f"dim {1 - dim}"):
            torch.cat(pieces, dim=1 - dim)
        with refused("SW223", "ranks 1, 2, 3, 0"):
            torch.cat([*pieces[1:], pieces[0]], dim=dim)
        torch.stack(pieces)
    with typecheck():
        torch.cat(gathered(dim), dim=1 - dim)
