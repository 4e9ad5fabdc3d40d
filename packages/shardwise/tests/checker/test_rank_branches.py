"""Terms that ranks add by their number: right on all ranks together, and no finding on the one that is checked."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R
from shardwise.checker import checking
from shardwise.diagnostics.deciding_lines import deciding_lines
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import InProcessWorld

from .on_ranks import RANKS, addend, drawn

FULL, BIAS = drawn(4, 3), drawn(3, seed=1)


def branch(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    if rank == 0:
        y = y + bias
    return y


def early_return(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    def added(to: Tensor) -> Tensor:
        if rank:
            return to
        return to + bias

    return added(y)


def skipped(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    for term in [bias * 0.5, bias * 0.5]:
        if term is not y and rank > 0:
            continue
        y = y + term
    return y


def in_one_statement(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    return y + (bias if rank < 1 else torch.zeros_like(bias))


def chosen_before(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    term = bias if rank == 0 else torch.zeros_like(bias)
    return y + term


def by_factor(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    return y + bias * (rank == 0)


def by_caller(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    if rank != 0:
        return y
    return plain(y, bias, rank, parallel)


def plain(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    return y + bias


def printed(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    if rank == 0:
        torch.ones(())
    return y + bias


def by_size(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    if parallel == 2:
        y = y + bias
    return y


def after_a_branch(y: Tensor, bias: Tensor, rank: int, parallel: int) -> Tensor:
    if rank == 0:
        y = y * 1.0
    else:
        y = y * 1
    if parallel > 1:
        y = y + bias
    return y


Way = Callable[[Tensor, Tensor, int, int], Tensor]
RIGHT: list[Way] = [branch, early_return, skipped, in_one_statement, chosen_before, by_factor, by_caller]
WRONG: list[Way] = [plain, printed, by_size, after_a_branch]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("place", [R, I])
@pytest.mark.parametrize("way", [*RIGHT, *WRONG], ids=lambda way: way.__name__)
def test_a_term_that_one_rank_adds_is_no_finding_and_one_that_all_add_is(way: Way, place: Any, local: bool) -> None:
    def rank() -> tuple[Tensor, list[str], list[str]]:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        collector = Collector()
        with spmd.set_current_mesh(mesh), checking(collect=collector, local=local):
            bias = spmd.assert_type(BIAS.clone(), {"tp": place})
            y = way(addend(FULL), bias, mesh.get_local_rank("tp"), mesh.size(0))
            dist.all_reduce(y)
        result = collector.result()
        return y, [one.code for one in result.findings], [one.what for one in result.lost]

    ranks = InProcessWorld(RANKS).run(rank)
    expected = FULL + BIAS
    is_right = all(torch.allclose(y, expected) for y, _, _ in ranks)
    assert is_right == (way in RIGHT)
    _, codes, lost = ranks[0]
    assert codes == ([] if is_right else ["SW113"])
    assert lost == ["the type of what ranks add or leave out by their number"] * is_right


def test_a_number_along_another_axis_decides_nothing() -> None:
    def rank() -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        collector = Collector()
        with spmd.set_current_mesh(mesh), checking(collect=collector):
            y = spmd.assert_type(FULL.clone(), {"dp": R, "tp": P})
            bias = spmd.assert_type(BIAS.clone(), {"dp": R, "tp": R})
            branch(y, bias, mesh.get_local_rank("dp"), 2)
        return [one.code for one in collector.result().findings]

    assert InProcessWorld(4).run(rank)[0] == ["SW113"]


def test_a_number_that_is_compared_is_what_it_is_to_everyone_else() -> None:
    def rank() -> None:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh), checking(collect=Collector()):
            mine = mesh.get_local_rank("tp")
            assert {mine: 1}[dist.get_rank()] == 1
            assert mine in range(RANKS)
            assert mine <= mine < mine + 1
            assert mine != "0"
            assert bool(mine) is (dist.get_rank() > 0)
            assert sorted([mine, -1]) == [-1, int(mine)]
            with pytest.raises(TypeError):
                mine < "0"  # type: ignore[operator]  # noqa: B015

    InProcessWorld(RANKS).run(rank)


def test_the_lines_that_decide_are_conditions_exits_and_what_is_used(tmp_path: Path) -> None:
    text = textwrap.dedent("""\
        first = 1
        def outer(rank):
            if rank == 0:
                pass
            unused = rank
            used = rank
            for x in range(3):
                if x == rank:
                    continue
                try:
                    total = used + x
                finally:
                    pass
        """)
    ast.parse(text)
    file = tmp_path / "program.py"
    file.write_text(text)
    assert sorted(deciding_lines(str(file), 11)) == [(6, 6), (8, 8), (11, 11)]
    assert deciding_lines(str(file), 40) == ()
    assert deciding_lines(str(tmp_path / "none.py"), 1) == ()
