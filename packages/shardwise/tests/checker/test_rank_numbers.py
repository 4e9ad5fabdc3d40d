"""Numbers of ranks in programs: what is cut or made by them varies, and is a shard where it is exactly the rank's part.

The oracle is the in-process world: each program runs on all ranks, and what its types say is held against the numbers.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.interop.torch_compat import fake_world, tree_map
from shardwise.mesh.entry import current_entry

from .helpers import make, place, refused
from .on_ranks import RANKS, Case, drawn, judge, outcomes, shard, whole

FULL = drawn(8, 6)


def rank() -> int:
    return dist.get_rank()


def mesh() -> Any:
    entry = current_entry()
    assert entry is not None
    return entry.device_mesh


def x() -> Any:
    return whole(FULL)


PARTS: list[tuple[str, Any]] = [
    ("slice", lambda: x()[rank() * 4 : (rank() + 1) * 4]),
    ("slice by a length", lambda: x()[rank() * 4 : rank() * 4 + 4]),
    ("slice by its own size", lambda: x()[rank() * x().shape[0] // RANKS : (rank() + 1) * x().shape[0] // RANKS]),
    ("slice by len", lambda: x()[len(FULL) // RANKS * rank() : len(FULL) // RANKS * (1 + rank())]),
    ("slice of a later dim", lambda: x()[:, rank() * 3 : (rank() + 1) * 3]),
    ("slice after an ellipsis", lambda: x()[..., rank() * 3 : (rank() + 1) * 3]),
    ("slice beside a new dim", lambda: x()[None, rank() * 4 : (rank() + 1) * 4]),
    ("slice beside a number", lambda: x().view(2, 4, 6)[1, rank() * 2 : (rank() + 1) * 2]),
    ("narrow", lambda: x().narrow(0, rank() * 4, 4)),
    ("narrow by name", lambda: torch.narrow(x(), dim=1, start=rank() * 3, length=3)),
    ("chunk", lambda: x().chunk(RANKS)[rank()]),
    ("chunk of a later dim", lambda: torch.chunk(x(), RANKS, dim=-1)[rank()]),
    ("split", lambda: x().split(4)[rank()]),
    ("split with sizes", lambda: torch.split(x(), [3, 3], 1)[rank()]),
    ("tensor_split", lambda: x().tensor_split(RANKS)[rank()].contiguous()),
    ("the mesh's number", lambda: x().chunk(RANKS)[mesh().get_local_rank("tp")]),
    ("a group's number", lambda: x().chunk(RANKS)[dist.get_rank(mesh().get_group("tp"))]),
    ("the coordinate", lambda: x().chunk(RANKS)[mesh().get_coordinate()[0]]),
    ("a range of positions", lambda: x()[torch.arange(rank() * 4, (rank() + 1) * 4)]),
    ("by divmod", lambda: x()[divmod(rank(), RANKS)[1] * 4 : (rank() % RANKS + 1) * 4]),
    ("of a constant, a slice", lambda: torch.arange(8.0)[rank() * 4 : (rank() + 1) * 4]),
    ("of a constant, a narrow", lambda: torch.eye(8).narrow(1, rank() * 4, 4)),
    ("of a constant, a chunk", lambda: torch.arange(8.0).chunk(RANKS)[rank()]),
    ("of a constant, as positions", lambda: torch.arange(8.0).chunk(RANKS)[rank()][:, None] * torch.ones(1, 3)),
    ("of positions, counted from the own first", lambda: torch.arange(4.0) + rank() * 4),
    ("of positions, the own first in front", lambda: rank() * 4 + torch.arange(4)),
    ("of positions, counted from one", lambda: torch.arange(1.0, 5.0) + rank() * 4),
    ("of positions, from anywhere", lambda: torch.arange(3.0, 7.0) + (rank() * 4 - 1)),
    ("of positions, as a column", lambda: torch.add(torch.arange(4.0)[:, None], rank() * 4) * torch.ones(1, 3)),
    ("of positions, not from zero", lambda: x()[torch.arange(1, 5) + (rank() * 4 - 1)]),
    ("by bits", lambda: x()[(rank() & 1) << 2 : ((rank() & 1) + 1) << 2]),
]


@pytest.mark.parametrize(("name", "program"), PARTS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_rank_s_own_part_is_a_shard_of_what_all_have(name: str, program: Any) -> None:
    meant = {
        "slice of a later dim": FULL,
        "slice beside a new dim": FULL[None],
        "slice beside a number": FULL.view(2, 4, 6)[1],
        "of a constant, a slice": torch.arange(8.0),
        "of a constant, a narrow": torch.eye(8),
        "of a constant, a chunk": torch.arange(8.0),
        "of a constant, as positions": torch.arange(8.0)[:, None] * torch.ones(1, 3),
        "of positions, counted from the own first": torch.arange(8.0),
        "of positions, the own first in front": torch.arange(8),
        "of positions, counted from one": torch.arange(1.0, 9.0),
        "of positions, from anywhere": torch.arange(2.0, 10.0),
        "of positions, as a column": torch.arange(8.0)[:, None] * torch.ones(1, 3),
    }
    judge(Case(name, program, meant.get(name, FULL)))


OTHER_CUTS: list[tuple[str, Any]] = [
    ("another rank's part", lambda: x()[(rank() + 1) % RANKS * 4 :][:4]),
    ("every other row", lambda: x()[rank() :: RANKS]),
    ("a window", lambda: x()[rank() : rank() + 4]),
    ("half of the part", lambda: x()[rank() * 4 : rank() * 4 + 2]),
    ("one row", lambda: x()[rank()]),
    ("one piece", lambda: x().unbind(0)[rank()]),
    ("the next piece", lambda: x().chunk(RANKS)[(rank() + 1) % RANKS]),
    ("both dims", lambda: x()[rank() * 4 : rank() * 4 + 4, rank() * 3 : rank() * 3 + 3]),
    ("positions that overlap", lambda: (torch.arange(4) + rank() * 3)[:, None]),
    ("every other position", lambda: (torch.arange(0, 8, 2) + rank() * 4)[:, None]),
    ("numbers that are no positions", lambda: (torch.tensor([0, 2, 1, 3]) + rank() * 4)[:, None]),
    ("scaled", lambda: x() * (1 + rank())),
    ("scaled by a power", lambda: x() * 3 ** rank()),
    ("scaled by a power of how many", lambda: x() * dist.get_world_size() ** rank()),
    ("clamped", lambda: x().clamp(min=rank())),
    ("compared", lambda: torch.where(x() > rank(), x(), 0)),
    ("rolled", lambda: x().roll(rank(), 0)),
    ("rolled along two dims", lambda: x().roll((0, rank()), (0, 1))),
    ("padded", lambda: F.pad(x(), (rank(), 1 - rank()))),
    ("a constant filled with it", lambda: x()[0, 0] + torch.full((2,), rank())),
    ("a constant made of it", lambda: x()[0, 0] * torch.tensor([rank(), 1])),
    ("a constant compared with it", lambda: x()[0] * (torch.arange(6) == rank())),
    ("a constant cut by it", lambda: x()[0, 0] * torch.eye(RANKS)[rank()]),
]


@pytest.mark.parametrize(("name", "program"), OTHER_CUTS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_else_is_made_with_the_rank_varies_and_is_no_global_value(name: str, program: Any) -> None:
    for found in outcomes(program, local=True):
        assert not isinstance(found, str), found
        assert list(found[0].type.placements) == [V]
    judge(Case(name, program, code="SW408"))


@pytest.mark.parametrize("made", [lambda: torch.arange(4) * 2 + rank() * 4, lambda: torch.full((4,), rank())])
def test_nothing_is_known_of_a_constant_that_a_number_of_the_rank_has_changed(made: Any, tp_mesh: Any) -> None:
    """No part of anything is seen in it; permissively it is unknown."""
    with typecheck("permissive", local=False):
        positions = made()
        assert place(positions) == ""
        assert place(positions[:, None] >= torch.arange(8)) == ""
    with typecheck(local=False), refused("SW408", "varies"):
        made()[:, None]


def looked_up(start: int, length: int) -> torch.Tensor:
    """Rows of ``FULL`` by number, of which every rank has some from ``start`` on; addends of the whole lookup."""
    ids = whole(torch.tensor([7, 0, 3, 4, 4]))
    own = spmd.assert_type(FULL.chunk(RANKS)[dist.get_rank()].clone(), {"tp": spmd.S(0)})
    outside = (ids < start) | (ids >= start + length)
    found = own[(ids - start).masked_fill(outside, 0)]
    found = found.masked_fill(outside[:, None], 0.0)
    total: torch.Tensor = spmd.all_reduce(found, "tp", src=P, dst=R)
    return total


def test_a_lookup_in_the_rank_s_own_rows_is_no_finding_and_what_moves_positions_is_listed() -> None:
    judge(Case("a lookup", lambda: looked_up(rank() * 4, 4), FULL[[7, 0, 3, 4, 4]]))
    judge(Case("scaled by the rank", lambda: x() * (rank() + 1), code="SW408"))
    judge(Case("numbers that are no positions", lambda: x().long() * (rank() + 1), code="SW408"))
    judge(
        Case(
            "the own rows without an offset",
            lambda: F.embedding(whole(torch.tensor([0, 1])), shard(FULL)),
            code="SW405",
        )
    )

    def program() -> list[str]:
        collector = Collector()
        with checking(collect=collector, local=False):
            ids = spmd.assert_type(torch.arange(4).clone(), {"tp": R})
            assert [str(p) for p in spmd.typeof(ids - dist.get_rank()).type.placements] == ["?"]
            assert [str(p) for p in spmd.typeof(ids - dist.get_rank()).type.placements] == ["?"]
        return [f"{lost.what} {lost.count}" for lost in collector.result().lost]

    with fake_world(1, 2), spmd.set_current_mesh(init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))):
        assert program() == ["the type of positions that are moved to a rank's own part 1"] * 2


def test_the_sum_of_what_each_rank_has_cut_is_right_and_that_of_what_all_have_is_not() -> None:
    def right() -> Any:
        total = x()[rank() * 4 : (rank() + 1) * 4].sum(0)
        dist.all_reduce(total)
        return total

    def wrong() -> Any:
        total = x()[: len(FULL) // RANKS].sum(0)
        dist.all_reduce(total)
        return total

    for local in (True, False):
        judge(Case("summed", right, FULL.sum(0)), local=local)
        judge(Case("the same rows everywhere", wrong, code="SW201"), local=local)


def test_a_sum_that_is_still_pending_is_not_cut_by_the_rank(tp_mesh: Any) -> None:
    with typecheck():
        for cut in (lambda p: p[rank() : rank() + 1], lambda p: p.chunk(4)[rank()], lambda p: p.unbind()[rank()]):
            with refused("SW110", "partial sum"):
                cut(make("P"))


def test_an_invariant_parameter_is_not_cut_by_the_rank_unless_it_is_converted(tp_mesh: Any) -> None:
    with typecheck():
        w = make("I", grad=True)
        with refused("SW101", "rank"):
            w[rank() : rank() + 1]
        assert place(spmd.convert(w, "tp", src=spmd.I, dst=R)[rank() : rank() + 1]) == "V"


def test_the_number_is_told_axis_by_axis(mesh: Any) -> None:
    with typecheck():
        x = spmd.assert_type(torch.randn(8, 8), {"dp": R, "tp": R})

        def places(number: Any) -> tuple[str, str]:
            made = x * (1 + number)
            return place(made, "dp"), place(made, "tp")

        assert places(dist.get_rank()) == ("V", "V")
        assert places(dist.get_rank() // 4) == places(mesh.get_local_rank("dp")) == ("V", "R")
        assert places(dist.get_rank() % 4) == places(mesh.get_local_rank("tp")) == ("R", "V")
        assert places(dist.get_rank() * 0) == ("R", "R")
        assert places(mesh.get_local_rank("dp") * mesh.get_local_rank("tp")) == ("V", "V")
        assert [places(at) for at in mesh.get_coordinate()] == [("V", "R"), ("R", "V")]


def test_a_part_along_two_axes_is_sharded_over_both(mesh: Any) -> None:
    with typecheck(local=False):
        x = spmd.assert_type(torch.randn(8, 8), {"dp": R, "tp": R})
        both = spmd.typeof(x.chunk(8)[dist.get_rank()])
        assert str(both) == "f32[1@(dp,tp), 8]"
        crossed = mesh.get_local_rank("tp") * 2 + mesh.get_local_rank("dp")
        with refused("SW408", "differs"):
            x[crossed : crossed + 1]


def test_a_number_that_was_asked_for_before_there_was_a_mesh_is_known_on_its_axes() -> None:
    with fake_world(5, 8), typecheck():
        number, count = dist.get_rank(), dist.get_world_size()
        grid = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with spmd.set_current_mesh(grid):
            x = spmd.assert_type(torch.randn(8, 8), {"dp": R, "tp": P})
            assert place(x * (number // 4), "dp") == "V"
            assert spmd.typeof(x / count).type.exponent(spmd.normalize_axis("tp")) == -1
            with refused("SW110", "varies there"):
                x * (number % 4)


def test_zero_on_this_rank_is_not_zero_on_others(tp_mesh: Any) -> None:
    with typecheck():
        assert rank() == 0
        with refused("SW110", "varies there"):
            make("P") + rank()
        assert place(make("R") * torch.full((4,), rank())) == "V"


def test_a_rank_is_an_int_to_everyone_else(tp_mesh: Any) -> None:
    with typecheck():
        number = rank() + 3
        pieces = make("R").chunk(4)
        assert (f"{number}", type(int(number)), [0, 1, 2, 3][number]) == ("3", int, 3)
        assert type(pickle.loads(pickle.dumps(number))) is int
        assert copy.deepcopy(number) == 3
        assert torch.device("cuda", rank()).index == 0
        assert torch.cat(pieces).shape == torch.stack(tree_map(torch.clone, pieces)).view(4, 4).shape
        assert [place(piece) for piece in pieces] == ["R"] * 4
        assert isinstance(pieces, tuple)
        assert place(pieces[number]) == "V"
        assert place(pieces[3]) == "R"


def test_a_number_on_the_left_of_a_tensor_compares_with_its_elements(tp_mesh: Any) -> None:
    ids = make("R", 6, dtype=torch.int64)
    with typecheck():
        start = rank() * 3
        for inside in (start <= ids, start < ids, start == ids, start != ids, start >= ids, start > ids):
            assert inside.shape == ids.shape
            assert place(inside) == "V"
    assert (start == "0") is False


def test_torch_s_own_code_gets_plain_numbers(tp_mesh: Any) -> None:
    with typecheck():
        inside: list[Any] = []
        namespace = {"dist": dist, "inside": inside}
        exec(compile("inside.append(dist.get_rank())", torch.__path__[0] + "/somewhere.py", "exec"), namespace)
        assert type(inside[0]) is int
        assert type(rank()) is not int
    assert type(rank()) is int


def test_a_pipeline_s_neighbours_are_plain_enough_for_messages() -> None:
    def program() -> Any:
        here, there = x() * 1, torch.empty_like(FULL)
        peer = (rank() + 1) % RANKS
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, here, peer), dist.P2POp(dist.irecv, there, peer)]):
            work.wait()
        return spmd.assert_type(there.clone(), {"tp": V}) * 1

    assert not any(isinstance(found, str) for found in outcomes(program, local=True))
