"""Rows that an exchange has moved, and gathered pieces: what is accepted with global types is what one device computes.

Every program runs on all ranks in this process. A right one is accepted and denotes the value of one device; a wrong
one is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor

import shardwise as spmd
from shardwise import R, S
from shardwise.types import SpmdTypeError
from shardwise.worlds.world import InProcessWorld

from .on_ranks import RANKS, Case, addend, drawn, judge, outcomes, shard, whole

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:.*:FutureWarning")]

WHOLE = drawn(8, 4, seed=1)
WEIGHT = drawn(4, 4, seed=2)
RAGGED = ([1, 3], [3, 1])
"""Rows that each of two ranks sends to each, and receives."""


def rows() -> Tensor:
    return shard(WHOLE)


def to_columns(x: Tensor) -> Tensor:
    return spmd.all_to_all(x, "tp", src=S(0), dst=S(1))


def swap(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


def swap_typed(x: Tensor) -> Tensor:
    return spmd.all_to_all(x, "tp", src=S(0), dst=S(0))


def swap_functional(x: Tensor) -> Tensor:
    return funcol.all_to_all_single(x, None, None, dist.group.WORLD)


def gathered(x: Tensor) -> list[Tensor]:
    pieces = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(pieces, x)
    return pieces


def received(rows: int, columns: int, dim: int, step: int) -> Tensor:
    """All pieces, in the parts of a new tensor."""
    whole = torch.empty(rows, columns, dtype=WHOLE.dtype)
    dist.all_gather(list(whole.chunk(RANKS, dim))[::step], shard(WHOLE))
    return whole


def scattered(dim: int, step: int) -> Tensor:
    """This rank's part of a sum, handed over piece by piece."""
    pieces = [piece.contiguous() for piece in addend(WHOLE).chunk(RANKS, dim)][::step]
    out = torch.empty_like(pieces[0])
    dist.reduce_scatter(out, pieces)
    return out


def put_back(dim: int, factor: float = 1) -> Tensor:
    """All pieces, of which the own one can have a gradient."""
    x = shard(WHOLE.detach().requires_grad_())
    pieces = gathered(x.detach())
    pieces[dist.get_rank()] = x if factor == 1 else x * factor
    return torch.cat(pieces, dim)


def halves() -> list[Tensor]:
    return [half for x in gathered(rows()) for half in x.chunk(2)]


def sums() -> list[Tensor]:
    return [x.sum(0) for x in gathered(rows())]


def quarters(x: Tensor) -> list[Tensor]:
    """The quarters of ``x``, those that are first in a half first."""
    return [*x.chunk(4)[::2], *x.chunk(4)[1::2]]


def beside(x: Tensor) -> Tensor:
    return torch.cat([x, x.relu()], 1)


def exchanged(x: Tensor, dim: int) -> list[Tensor]:
    """This rank's pieces along ``dim`` of what all ranks have."""
    sent = [piece.contiguous() for piece in x.chunk(RANKS, dim)]
    received = [torch.empty_like(piece) for piece in sent]
    dist.all_to_all(received, sent)
    return received


def there_and_back(first: int, second: int) -> Tensor:
    columns = torch.cat(exchanged(rows(), 1), first)
    return torch.cat(exchanged(columns, 0), second)


def mixture(exchange: Callable[[Tensor], Tensor]) -> Tensor:
    x = shard(WHOLE)
    return exchange(torch.relu(exchange(x) @ whole(WEIGHT)) * 2) + x


def into_place(exchange: Callable[[Tensor], Tensor]) -> Tensor:
    x, y = shard(WHOLE), shard(WHOLE)
    moved = exchange(y)
    return x.add_(moved)


EXCHANGES = {"raw": swap, "typed": swap_typed, "functional": swap_functional}
MIXED = torch.relu(WHOLE @ WEIGHT) * 2 + WHOLE
CASES = [
    case
    for way, exchange in EXCHANGES.items()
    for case in (
        Case(f"{way}, there and back", lambda e=exchange: mixture(e), MIXED),
        Case(f"{way}, summed where it is", lambda e=exchange: e(rows()).sum(0), WHOLE.sum(0)),
        Case(f"{way}, two of one order", lambda e=exchange: (e(rows()) * e(shard(MIXED))).sum(), (WHOLE * MIXED).sum()),
        Case(f"{way}, views of one order", lambda e=exchange: e(e(rows()).view(4, 2, 2).flatten(1)), WHOLE),
        Case(f"{way}, not back", lambda e=exchange: e(rows()) + rows(), 2 * WHOLE, "SW223"),
        Case(f"{way}, not back by name", lambda e=exchange: torch.add(rows(), other=e(rows())), 2 * WHOLE, "SW223"),
        Case(f"{way}, in place", lambda e=exchange: into_place(e), 2 * WHOLE, "SW223"),
        Case(f"{way}, contracted", lambda e=exchange: e(rows()).t() @ rows(), WHOLE.t() @ WHOLE, "SW223"),
        Case(f"{way}, thrice", lambda e=exchange: e(e(e(rows()))) + rows(), 2 * WHOLE, "SW223"),
        Case(f"{way}, gathered", lambda e=exchange: spmd.all_gather(e(rows()), "tp", src=S(0), dst=R), WHOLE, "SW223"),
        Case(f"{way}, to another dim", lambda e=exchange: to_columns(e(rows())), WHOLE, "SW223"),
        Case(f"{way}, gathered raw", lambda e=exchange: torch.cat(gathered(e(rows()))), WHOLE, "SW223"),
    )
]  # fmt: skip
CASES += [
    Case("pieces in order", lambda: torch.cat(gathered(rows())), WHOLE),
    Case("pieces of dim 1", lambda: torch.cat(gathered(shard(WHOLE, 1)), -1), WHOLE),
    Case("pieces on top of each other", lambda: torch.vstack(gathered(rows())), WHOLE),
    Case("pieces side by side", lambda: torch.hstack(gathered(shard(WHOLE, 1))), WHOLE),
    Case("columns on top of each other", lambda: torch.vstack(gathered(shard(WHOLE, 1))), WHOLE, "SW223"),
    Case("rows side by side", lambda: torch.hstack(gathered(rows())), WHOLE, "SW223"),
    Case("pieces turned round", lambda: torch.cat(gathered(rows())[::-1]), WHOLE, "SW223"),
    Case("a piece left out", lambda: torch.cat(gathered(rows())[:1]), WHOLE, "SW223"),
    Case("a piece twice", lambda: torch.cat([gathered(rows())[0]] * 2), WHOLE, "SW223"),
    # What is computed of pieces are pieces too, along the dim that has become of theirs.
    Case("computed pieces", lambda: torch.cat([x.relu() for x in gathered(rows())]), WHOLE.relu()),
    Case("computed pieces turned round", lambda: torch.cat([x.abs() for x in gathered(rows())][::-1]), WHOLE, "SW223"),
    Case("viewed pieces", lambda: torch.cat([x.view(4, 2, 2) for x in gathered(rows())]), WHOLE.view(8, 2, 2)),
    Case("viewed along another dim", lambda: torch.cat([x.view(4, 2, 2) for x in gathered(rows())], 1), 0, "SW223"),
    Case("transposed pieces", lambda: torch.cat([x.t() for x in gathered(rows())], 1), WHOLE.t()),
    Case("transposed, on top of each other", lambda: torch.cat([x.t() for x in gathered(rows())]), WHOLE.t(), "SW223"),
    Case("written pieces", lambda: torch.cat([x.mul_(2) for x in gathered(rows())]), 2 * WHOLE),
    Case("a piece beside what is computed of it", lambda: beside(gathered(rows())[1]), beside(WHOLE[4:])),
    Case("halves in another order", lambda: torch.cat(halves()[::2] + halves()[1::2]), torch.cat(quarters(WHOLE))),
    Case("reduced pieces turned round", lambda: torch.stack(sums()[::-1]).sum(0), WHOLE.sum(0)),
    # Pieces that are received into a tensor of the program.
    Case("received in place", lambda: received(8, 4, 0, 1), WHOLE),
    Case("received in place, turned round", lambda: received(8, 4, 0, -1), WHOLE, "SW223"),
    Case("received side by side", lambda: received(4, 8, 1, 1), WHOLE, "SW223"),
    Case("a sum in pieces", lambda: scattered(0, 1) + rows(), 2 * WHOLE),
    Case("a sum in pieces of columns", lambda: scattered(1, 1) + shard(WHOLE, 1), 2 * WHOLE),
    Case("a sum in pieces, turned round", lambda: scattered(0, -1), WHOLE, "SW223"),
    Case("the own piece put back", lambda: put_back(0), WHOLE),
    Case("the own piece put back, side by side", lambda: put_back(1), WHOLE, "SW402"),
    Case("another piece in place of the own", lambda: put_back(0, 2.0), WHOLE, "SW402"),
    # From rows to columns and back, by lists.
    Case("exchanged", lambda: torch.cat(exchanged(rows(), 1)), WHOLE),
    Case("exchanged, computed", lambda: torch.cat([x.exp() for x in exchanged(rows(), 1)]), WHOLE.exp()),
    Case("exchanged, along all rows", lambda: torch.cat(exchanged(rows(), 1)).softmax(0), WHOLE.softmax(0)),
    Case("exchanged there and back", lambda: there_and_back(0, 1) + rows(), 2 * WHOLE),
    Case("exchanged and joined the wrong way", lambda: torch.cat(exchanged(rows(), 1), 1), WHOLE, "SW405"),
    Case("exchanged, turned round", lambda: torch.cat(exchanged(rows(), 1)[::-1]), WHOLE, "SW223"),
    Case("exchanged there, and back the wrong way", lambda: there_and_back(0, 0), WHOLE, "SW405"),
    Case("exchanged, with whole rows", lambda: torch.cat(exchanged(rows(), 1)) + shard(WHOLE, 1), 2 * WHOLE),
    Case("exchanged, contracted", lambda: torch.cat(exchanged(rows(), 1)) @ shard(WEIGHT), WHOLE @ WEIGHT),
    Case("exchanged, as if rows were still cut", lambda: torch.cat(exchanged(rows(), 1)).cumsum(1), WHOLE, "SW405"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_and_pieces_meet_in_their_order_only(case: Case) -> None:
    judge(case)


def ragged() -> Tensor:
    x, rank = rows(), dist.get_rank()
    sent = RAGGED[rank]
    received = [sizes[rank] for sizes in RAGGED]
    out = x.new_empty(sum(received), 4)
    dist.all_to_all_single(out, x, received, sent)
    home = torch.empty_like(x)
    dist.all_to_all_single(home, out * 2, sent, received)
    return home + x


def test_an_exchange_with_sizes_is_undone_by_its_inverse() -> None:
    judge(Case("ragged", lambda: ragged(), 3 * WHOLE))


def test_the_message_names_what_was_moved() -> None:
    def program() -> Tensor:
        x = rows()
        moved = swap(x)
        with pytest.raises(SpmdTypeError, match="add combines rows that all_to_all has moved over tp") as caught:
            moved + x
        assert "each row of moved meets a row of x that is not its own" in str(caught.value)
        raise caught.value

    assert outcomes(program, local=False) == ["SW223"] * RANKS


def gathered_over_all_axes(order: list[int]) -> tuple[str, bool]:
    """Joins the pieces of all ranks of a mesh of two axes; gives what is told, and whether the whole came out."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    with spmd.set_current_mesh(mesh), spmd.typecheck(local=False):
        own = WHOLE.chunk(4)[dist.get_rank()].clone()
        x = spmd.assert_type(own, {}, spmd.PartitionSpec(("dp", "tp"), None))
        pieces = [torch.empty_like(x) for _ in range(4)]
        dist.all_gather(pieces, x)
        try:
            made = torch.cat([pieces[at] * 2 for at in order])
        except SpmdTypeError as error:
            return str(error.code), False
        with spmd.no_typecheck():
            return "", torch.equal(made, 2 * WHOLE)


@pytest.mark.parametrize(("order", "code"), [([0, 1, 2, 3], ""), ([0, 2, 1, 3], "SW223")])
def test_pieces_of_a_dim_that_several_axes_cut_have_one_order(order: list[int], code: str) -> None:
    assert InProcessWorld(4).run(gathered_over_all_axes, order) == [(code, not code)] * 4
