"""Small programs that look right and are not, and their like that are: global types against the numbers of one device.

What is accepted denotes what one device computes; what is refused is refused with its code. Each row is one way to get
a shard, an index into one, or a pending sum wrong that no row of an op rule shows by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import shardwise as spmd
from shardwise import S

from .on_ranks import RANKS, Case, addend, drawn, judge, shard, whole

pytestmark = pytest.mark.processes

X, Y, W = drawn(8, 4), drawn(8, 4, seed=5), drawn(4, 4, seed=2)
SEVEN = drawn(7, 4, seed=11)
Z = torch.complex(X, Y)
ROWS = torch.arange(8) % 4
WIDE = ROWS[:, None].expand(-1, 4)
IMAGE, SIGNAL, CUBES = drawn(2, 8, 4, seed=7), drawn(2, 3, 8, seed=8), drawn(4, 3, 3, seed=9)


def zeros() -> Tensor:
    return torch.zeros(4, 4, dtype=torch.float64)


def changed(x: Tensor, change: Callable[[Tensor], Any]) -> Tensor:
    """``x`` after a change in place."""
    change(x)
    return x


def no_first_column(x: Tensor) -> None:
    x[:, 0] = 0


def no_first_row(x: Tensor) -> None:
    x[0] = 0


def into(out: Tensor, call: Callable[[Tensor], Any]) -> Tensor:
    call(out)
    return out


def ragged() -> Tensor:
    """Four rows on rank 0, three on rank 1."""
    own = SEVEN.tensor_split([4])[dist.get_rank()].clone()
    return spmd.assert_type(spmd.assert_type(own, {"tp": S(0)}), {"tp": S(0)}, even=False)


def mean_of_ragged() -> Tensor:
    count = torch.tensor(ragged().numel(), dtype=torch.float64)
    dist.all_reduce(count)
    return changed(ragged().sum(), dist.all_reduce) / count


RIGHT: list[tuple[str, Callable[[], Any], Any]] = [
    ("a column set", lambda: changed(shard(X), no_first_column), changed(X.clone(), no_first_column)),
    ("everything through a view", lambda: changed(shard(X), lambda x: x.view(-1).add_(1)), X + 1),
    ("everything through a transpose", lambda: changed(shard(X), lambda x: x.t().mul_(0.5)), X / 2),
    ("rows of a table by a sharded index", lambda: whole(W)[shard(ROWS)], W[ROWS]),
    ("the same by index_select", lambda: whole(W).index_select(0, shard(ROWS)), W[ROWS]),
    ("gathered by a sharded index", lambda: whole(W).gather(0, shard(WIDE)), W.gather(0, WIDE)),
    ("added into zeros", lambda: zeros().index_add(0, shard(ROWS), shard(X)), zeros().index_add(0, ROWS, X)),
    ("put into zeros and added", lambda: zeros().index_put((shard(ROWS),), shard(X), accumulate=True),
     zeros().index_put((ROWS,), X, accumulate=True)),
    ("scattered into zeros and added", lambda: zeros().scatter_add(0, shard(WIDE), shard(X)),
     zeros().scatter_add(0, WIDE, X)),
    ("scattered and reduced by the sum", lambda: zeros().scatter_reduce(0, shard(WIDE), shard(X), "sum"),
     zeros().scatter_reduce(0, WIDE, X, "sum")),
    ("classes of known number", lambda: F.one_hot(shard(ROWS), 4), F.one_hot(ROWS, 4)),
    ("a dot product", lambda: torch.einsum("ij,ij->", shard(X), shard(Y)), (X * Y).sum()),
    ("an ellipsis kept", lambda: torch.einsum("...j,jk->...k", shard(X), whole(W)), X @ W),
    ("an ellipsis summed over", lambda: torch.einsum("i...->...", shard(X)), X.sum(0)),
    ("a spectrum of the other dim", lambda: torch.fft.fft(shard(Z), dim=1), torch.fft.fft(Z, dim=1)),
    ("halves of the other dim", lambda: torch.cat(shard(X).chunk(2, 1)[::-1], 1), torch.cat(X.chunk(2, 1)[::-1], 1)),
    ("unbound and stacked again", lambda: torch.stack(shard(X).unbind(1), 1), X),
    ("a new dim expanded", lambda: shard(X[:, 0])[:, None].expand(-1, 3), X[:, :1].expand(-1, 3)),
    ("rows repeated one by one", lambda: shard(X).repeat_interleave(2, 0), X.repeat_interleave(2, 0)),
    ("the other dim padded", lambda: F.pad(shard(X), (1, 1)), F.pad(X, (1, 1))),
    ("channels interpolated", lambda: F.interpolate(shard(IMAGE, 1), scale_factor=2),
     F.interpolate(IMAGE, scale_factor=2)),
    ("columns of an embedding", lambda: F.embedding(whole(ROWS), shard(W, 1)), W[ROWS]),
    ("a mean over equal shards", lambda: F.cross_entropy(shard(X), shard(ROWS)), F.cross_entropy(X, ROWS)),
    ("every matrix's diagonal", lambda: torch.einsum("bii->bi", shard(CUBES)), torch.einsum("bii->bi", CUBES)),
    ("every matrix's trace and itself", lambda: torch.einsum("bii,bij->bj", shard(CUBES), shard(CUBES)),
     torch.einsum("bii,bij->bj", CUBES, CUBES)),
    ("rows against all rows", lambda: torch.cdist(shard(X), whole(Y)), torch.cdist(X, Y)),
    ("each row's norm", lambda: torch.linalg.norm(shard(X), dim=1), torch.linalg.norm(X, dim=1)),
    ("which are among some", lambda: torch.isin(shard(ROWS), torch.tensor([1, 2])),
     torch.isin(ROWS, torch.tensor([1, 2]))),
    ("the largest and the smallest", lambda: tuple(shard(X).aminmax(dim=0)), tuple(X.aminmax(dim=0))),
    ("a function that is linear in the pending sum", lambda: torch.lerp(addend(X), addend(Y), 0.25), X.lerp(Y, 0.25)),
    ("a list of pending sums", lambda: torch._foreach_lerp([addend(X)], [addend(Y)], 0.5)[0], X.lerp(Y, 0.5)),
    ("the parts of a complex sum", lambda: torch.view_as_real(addend(Z)), torch.view_as_real(Z)),
    ("a mean of all rows, of which ranks have more and fewer", mean_of_ragged, SEVEN.mean()),
    ("a view by the own number of rows", lambda: ragged().view(ragged().shape[0], 2, 2), SEVEN.view(7, 2, 2)),
    ("zeros by the own number of rows",
     lambda: ragged() + torch.zeros(ragged().shape[0], 4, dtype=torch.float64), SEVEN),
    ("a mean that is averaged by hand",
     lambda: changed(shard(X).mean(), dist.all_reduce) / dist.get_world_size(), X.mean()),
    ("the same by the group's size",
     lambda: changed(shard(X).mean(), dist.all_reduce) / dist.group.WORLD.size(), X.mean()),  # type: ignore[union-attr]
]  # fmt: skip

WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("each rank's first row set", lambda: changed(shard(X), no_first_row), "SW405"),
    ("a slice of each rank's rows", lambda: shard(X)[1:3], "SW405"),
    ("each rank's last row", lambda: shard(X)[-1], "SW405"),
    ("each rank's first half", lambda: shard(X).chunk(2)[0], "SW405"),
    ("strides into a shard", lambda: torch.as_strided(shard(X), (2, 4), (4, 1)), "SW405"),
    ("a dim of length one taken away", lambda: shard(X[:2]).squeeze(0), "SW405"),
    ("a dim of length one broadcast", lambda: shard(X[:2]) * whole(X), "SW402"),
    ("a dim of length one expanded", lambda: shard(X[:2]).expand(5, 4), "SW405"),
    ("shards repeated as a whole", lambda: shard(X).repeat(2, 1), "SW405"),
    ("shards joined along their dim", lambda: torch.cat([shard(X), shard(Y)]), "SW405"),
    ("the positions of the largest", lambda: shard(X).argmax(0), "SW405"),
    ("the order of the rows", lambda: shard(X).argsort(0), "SW405"),
    ("positions where something holds", lambda: (shard(X) > 0).nonzero(), "SW405"),
    ("a diagonal", lambda: torch.einsum("ii->i", shard(W)), "SW411"),
    ("all pairs of rows", lambda: torch.einsum("ij,kj->ik", shard(X), shard(Y)), "SW401"),
    ("a piece contracted with the whole", lambda: torch.einsum("ij,jk->ik", shard(X, 1), whole(W[:2])), "SW402"),
    ("an embedding of which each has some rows", lambda: F.embedding(whole(ROWS), shard(W)), "SW405"),
    ("classes counted by each rank", lambda: F.one_hot(shard(ROWS)), "SW405"),
    ("the last write of any rank", lambda: zeros().scatter(0, shard(WIDE), shard(X)), "SW405"),
    ("a spectrum over the ranks", lambda: torch.fft.fft(shard(Z), dim=0), "SW405"),
    ("sums so far", lambda: shard(X).cumsum(0), "SW405"),
    ("a softmax over the ranks", lambda: shard(X).softmax(0), "SW405"),
    ("a triangle", lambda: shard(X).tril(), "SW406"),
    ("a mask of the whole", lambda: shard(X).masked_fill(whole(X) > 0, 0), "SW402"),
    ("neighbours of the next rank", lambda: F.conv1d(shard(SIGNAL, 2), whole(drawn(3, 3, 3))), "SW405"),
    ("a pending sum in a list", lambda: torch._foreach_exp([addend(X)])[0], "SW112"),
    ("a number added to one in a list", lambda: changed([addend(X)], lambda xs: torch._foreach_add_(xs, 1.0))[0],
     "SW113"),
    ("a product of two in a list", lambda: torch._foreach_addcmul([addend(X)], [addend(X)], [addend(X)])[0], "SW111"),
    ("a sum over the ranks in out=",
     lambda: into(torch.empty(4, dtype=torch.float64), lambda out: torch.sum(shard(X), 0, out=out)).relu(), "SW112"),
    ("a modulus of addends", lambda: addend(Z).abs(), "SW112"),
    ("whole numbers of addends", lambda: addend(X).long(), "SW112"),
    ("padded with ones", lambda: F.pad(addend(X), (1, 1), value=1.0), "SW113"),
    ("filled with ones", lambda: addend(X).masked_fill(whole(X) > 0, 1.0), "SW113"),
    ("all of a value by the own number of rows", lambda: whole(W) / ragged().shape[0], "SW408"),
    ("a pending sum by the own number of rows", lambda: ragged().sum(0) / ragged().shape[0], "SW110"),
    ("memory handed to another library", lambda: torch.from_dlpack(addend(X)), "SW115"),
    ("a term counted once, divided by the group's size",
     lambda: changed(shard(X).sum(), dist.all_reduce) / dist.group.WORLD.size() + whole(X[0, 0]), "SW150"),  # type: ignore[union-attr]
]  # fmt: skip


@pytest.mark.parametrize("case", [Case(*row) for row in RIGHT], ids=str)
def test_what_is_right_is_accepted_and_denotes_its_value(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", [Case(name, program, code=code) for name, program, code in WRONG], ids=str)
def test_what_is_wrong_is_told(case: Case) -> None:
    judge(case)


def test_the_judge_objects_to_another_value_and_to_a_refusal() -> None:
    for case in (Case("another value", lambda: shard(X), 2 * X), Case("refused", lambda: shard(X)[0], X[0])):
        with pytest.raises(AssertionError):
            judge(case)
    assert RANKS > 1


def stepped(hook: Callable[[Tensor], Tensor], on_weight: bool) -> Tensor:
    """The gradient of a weight under a hook, on the weight or on what is made of it."""
    weight = whole(W.clone().requires_grad_())
    made = shard(X) @ weight
    (weight if on_weight else made).register_hook(hook)
    made.square().sum().backward()
    dist.all_reduce(weight.grad)
    torch.optim.SGD([weight], lr=1.0).step()
    return weight


def stepped_on_one_device(factor: float) -> Tensor:
    weight = W.clone().requires_grad_()
    (X @ weight).square().sum().backward()
    assert weight.grad is not None
    return W - factor * weight.grad


def halved(gradient: Tensor) -> Tensor:
    return gradient * 0.5


def multiplied(gradient: Tensor) -> Tensor:
    return gradient * dist.get_world_size()


def divided(gradient: Tensor) -> Tensor:
    return gradient / dist.get_world_size()


HOOKS = [
    Case("halved inside", lambda: stepped(halved, False), stepped_on_one_device(0.5)),
    Case("halved on the weight", lambda: stepped(halved, True), stepped_on_one_device(0.5)),
    Case("multiplied inside", lambda: stepped(multiplied, False), code="SW606"),
    Case("divided inside", lambda: stepped(divided, False), code="SW606"),
    Case("multiplied on the weight", lambda: stepped(multiplied, True), code="SW616"),
]


@pytest.mark.parametrize("case", HOOKS, ids=str)
def test_a_hook_leaves_the_scale_of_what_it_stands_on(case: Case) -> None:
    judge(case)
