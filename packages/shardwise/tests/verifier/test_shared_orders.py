"""Samples that ranks share out: one order of one data set, or the ranks' shares overlap and leave some out."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

from shardwise.verifier.records.batches import Batches, orders_apart
from shardwise.verifier.runs.shared_orders import order_of

ROWS = torch.arange(24.0).view(8, 3)


class Computed(Dataset):
    """Samples that are made as they are asked for."""

    def __len__(self):
        return 8

    def __getitem__(self, at):
        return torch.rand(3)


def order(data, rank=0, epoch=0, replicas=2, **options):
    sampler = DistributedSampler(data, replicas, rank, **options)
    sampler.set_epoch(epoch)
    found = order_of(DataLoader(data, 2, sampler=sampler))
    assert found is not None
    return found


def apart(*orders):
    found = orders_apart([Batches(orders={(0, 0): one}) for one in orders])
    return found and (found[0], found[2])


def rows(*, seed=0):
    return TensorDataset(torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)))


def test_ranks_that_share_out_one_order_are_not_apart():
    assert apart(order(rows()), order(rows(), 1)) is None
    assert apart(order(rows(), 0, 3), order(rows(), 1, 3)) is None
    assert apart(order(Computed()), order(Computed(), 1)) is None
    assert apart(order(rows(), shuffle=False), order(rows(), 1, 5, shuffle=False)) is None, "no order is drawn"


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (order(rows(), 1, 1), "epoch 1 on rank 1, 0 on rank 0"),
        (order(rows(), 1, seed=7), "seed 7 on rank 1, 0 on rank 0"),
        (order(rows(), 1, shuffle=False), "shuffle False on rank 1, True on rank 0"),
        (order(TensorDataset(ROWS[:6]), 1), "total_size 6 on rank 1, 8 on rank 0"),
        (order(rows(seed=1), 1), "a data set that is not that of rank 0"),
    ],
)
def test_another_order_or_another_data_set_is_told(theirs, said):
    rank, how = apart(order(rows()), theirs)
    assert rank == 1
    assert said in how


def test_groups_that_each_share_out_data_of_their_own_are_right():
    groups = [order(rows(seed=group), rank) for group in (0, 1) for rank in (0, 1)]
    assert apart(*groups) is None
    assert apart(order(rows()), order(rows(), 1, replicas=4)) is None


@pytest.mark.parametrize(
    "data",
    [lambda x: Subset(TensorDataset(x), [0, 2]), lambda x: ConcatDataset([TensorDataset(x)] * 2), list],
    ids=["subset", "concatenation", "list"],
)
def test_the_digest_is_that_of_the_tensors_behind_a_data_set(data):
    one, same, other = (order(data(x)).data for x in (ROWS, ROWS.clone(), ROWS + 1))
    assert one == same != other
    assert order(Subset(rows(), [0, 1])).data != order(Subset(rows(), [1, 0])).data
    assert order(Computed()).data == b""


def test_loaders_without_such_a_sampler_have_no_shared_order():
    assert order_of(DataLoader(rows(), 2)) is None

    class Own(DistributedSampler):
        def __iter__(self):
            return iter([0])

    assert order_of(DataLoader(rows(), 2, sampler=Own(rows(), 2, 0))) is None
