"""Autograd functions by which ranks exchange rows, or ask for them, by whole numbers: how many each has, or which."""

from __future__ import annotations

import numpy
import pytest
import torch
import torch.distributed as dist
from torch.autograd import Function

import shardwise as spmd
from shardwise import S
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, place

SIZE = 4


class Sent(Function):
    """Entries of dim 0 for each rank, as tokens go to the ranks of their experts."""

    @staticmethod
    def forward(ctx, x):
        made = torch.empty_like(x)
        dist.all_to_all_single(made, x.contiguous())
        return made

    @staticmethod
    def backward(ctx, grad):
        made = torch.empty_like(grad)
        dist.all_to_all_single(made, grad.contiguous())
        return made


def test_entries_for_each_rank_of_a_shard_are_lost_to_specs_and_no_mistake(tp_mesh):
    found = Collector()
    with checking(strict=False, local=False, collect=found):
        tokens = spmd.assert_type(torch.randn(SIZE, 3, 2, requires_grad=True), {"tp": S(1)})
        sent = Sent.apply(tokens * 1)
        assert str(spmd.typeof(sent)).endswith("unknown")
    result = found.result()
    assert result.findings == ()
    assert [noted.what for noted in result.lost] == ["the type of what Sent makes of entries for each rank"]


class Dispatched(Function):
    """Rows go to the ranks of their experts: as many to each as it says, and from each as many as it has been told."""

    @staticmethod
    def exchanged(x, received, sent, group):
        made = x.new_empty(int(sum(received)), *x.shape[1:])
        dist.all_to_all_single(made, x.contiguous(), received, sent, group=group)
        return made

    @staticmethod
    def forward(ctx, x, received, sent, group):
        ctx.counts = received, sent, group
        return Dispatched.exchanged(x, received, sent, group)

    @staticmethod
    def backward(ctx, grad):
        received, sent, group = ctx.counts
        return Dispatched.exchanged(grad, sent, received, group), None, None, None


class DispatchedTwice(Dispatched):
    """Its backward counts every gradient twice."""

    @staticmethod
    def backward(ctx, grad):
        received, sent, group = ctx.counts
        return 2 * Dispatched.exchanged(grad, sent, received, group), None, None, None


class DispatchedOn(Dispatched):
    """Its backward sends gradients on in place of back."""

    @staticmethod
    def backward(ctx, grad):
        received, sent, group = ctx.counts
        on = Dispatched.exchanged(grad, received[1:] + received[:1], received, group)
        return on[: sum(sent)], None, None, None


COUNTS = {"lists": list, "numbers of numpy": numpy.array}
RECEIVED, SENDING = [3, 1, 2, 1], [1, 2, 0, 3]


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("letter", ["R", "V"])
def test_an_exchange_of_as_many_rows_as_each_rank_says_varies(tp_mesh, letter, kind):
    """Nobody here knows the counts of other ranks, and whatever they are, backward takes the same way back."""
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        x = make(letter, 6, 2, grad=True)
        made = Dispatched.apply(x * 1, COUNTS[kind](RECEIVED), COUNTS[kind](SENDING), tp_mesh.get_group("tp"))
    assert (place(made), tuple(made.shape)) == ("V", (7, 2))
    assert found.result().findings == ()


def test_of_such_an_exchange_of_shards_nobody_knows_the_dims(tp_mesh):
    with checking(strict=False, local=False, collect=Collector()):
        x = spmd.assert_type(torch.randn(6, 2, requires_grad=True), {"tp": S(0)})
        made = Dispatched.apply(x * 1, RECEIVED, SENDING, tp_mesh.get_group("tp"))
    assert not spmd.has_local_type(made)


@pytest.mark.parametrize("cls", [DispatchedTwice, DispatchedOn])
def test_an_exchange_by_counts_whose_backward_takes_another_way_is_told(tp_mesh, cls):
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        x = make("V", 6, 2, grad=True)
        cls.apply(x * 1, RECEIVED, SENDING, tp_mesh.get_group("tp"))
    assert [finding.code for finding in found.result().findings] == ["SW307"]


def test_calls_that_differ_by_counts_alone_are_looked_at_a_few_times(tp_mesh):
    """A batch of tokens brings counts that no other had; functions that are called later are looked at all the same."""
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        for n in range(1, 80):
            counts = [n, 1, 2, 1]
            x = make("V", n + 4, 2, grad=True)
            assert place(Dispatched.apply(x * 1, counts, counts, tp_mesh.get_group("tp"))) == "V"
        assert place(Sent.apply(make("V", SIZE, 2, grad=True) * 1)) == "V"
        DispatchedTwice.apply(make("V", 6, 2, grad=True) * 1, RECEIVED, SENDING, tp_mesh.get_group("tp"))
    assert [finding.code for finding in found.result().findings] == ["SW307"]


class FirstOrLast(Function):
    """Gathers where a list begins with one, and does nothing where it does not."""

    @staticmethod
    def forward(ctx, x, flags, group):
        ctx.flags, ctx.group = flags, group
        if flags[0] != 1:
            return x.clone()
        made = x.new_empty(SIZE * len(x), *x.shape[1:])
        dist.all_gather_into_tensor(made, x.contiguous(), group=group)
        return made

    @staticmethod
    def backward(ctx, grad):
        if ctx.flags[0] != 1:
            return grad, None, None
        made = grad.new_empty(len(grad) // SIZE, *grad.shape[1:])
        dist.reduce_scatter_tensor(made, grad.contiguous(), group=ctx.group)
        return made, None, None


def test_calls_that_do_other_things_by_their_numbers_are_each_looked_at(tp_mesh):
    group = tp_mesh.get_group("tp")
    with checking(strict=False, local=True, collect=Collector()):
        for n in (1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1):
            made = FirstOrLast.apply(make("V", 3, 2, grad=True) * 1, [n, n], group)
            assert place(made) == ("R" if n == 1 else "V")


class Looked(Function):
    """The rows of a table that the ranks share out, by numbers that each rank asks for."""

    @staticmethod
    def forward(ctx, table, ids, group):
        pieces = [torch.empty_like(table) for _ in range(dist.get_world_size(group))]
        dist.all_gather(pieces, table.contiguous(), group=group)
        ctx.given = ids, len(table), group
        return torch.cat(pieces)[ids]

    @staticmethod
    def backward(ctx, grad):
        ids, rows, group = ctx.given
        whole = grad.new_zeros(rows * dist.get_world_size(group), *grad.shape[1:]).index_add_(0, ids, grad)
        made = grad.new_empty(rows, *grad.shape[1:])
        dist.reduce_scatter_tensor(made, whole, group=group)
        return made, None, None


@pytest.mark.parametrize(("asked", "made"), [("R", "R"), ("V", None)])
def test_what_ranks_ask_for_by_numbers_of_their_own_is_not_equal(tp_mesh, asked, made):
    """It is looked at with the same numbers on all ranks, where all of them get the same rows."""
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        table = make("V", SIZE, 2, grad=True)
        ids = spmd.assert_type(torch.arange(3), {"tp": getattr(spmd, asked)})
        result = Looked.apply(table * 1, ids, tp_mesh.get_group("tp"))
    assert (place(result) if spmd.has_local_type(result) else None) == made
    assert found.result().findings == ()
