"""What the graph of a loss tells of how a rank reduces its samples to it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from shardwise.interop.autograd.own_reductions import PARTIAL_MEAN, SUM, own_reduction

WEIGHT = torch.nn.Parameter(torch.randn(3, 4))
X, Y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
IGNORED = torch.tensor([0, -100, 2, 0, 1])
SCORES = torch.randn(6, 3, requires_grad=True)
MASK = torch.tensor([1.0, 1, 0, 1, 1])


def logits():
    return X @ WEIGHT.T


def ce(targets=Y, **options):
    return F.cross_entropy(logits(), targets, **options)


MEANS = {
    "the mean of as many targets as there are": ce,
    "of rows that each ignore their last": lambda: F.cross_entropy(SCORES, torch.tensor([0, 1, -100, 2, 0, -100])),
    "smoothed": lambda: ce(label_smoothing=0.1),
    "divided by the number of samples": lambda: ce(reduction="sum") / len(X),
    "and by how many calls are accumulated": lambda: ce(reduction="sum") / len(X) / 4,
    "times a reciprocal": lambda: (1 / len(X)) * (logits() ** 2).sum(1).sum(),
    "batchmean": lambda: F.kl_div(logits().log_softmax(1), torch.ones(5, 3) / 3, reduction="batchmean"),
    "two terms over the samples": lambda: (ce(reduction="sum") + 0.5 * (logits() ** 2).sum()) / len(X),
    "a penalty on parameters": lambda: ce() + 0.01 * WEIGHT.pow(2).sum() + WEIGHT.abs().sum() + WEIGHT.norm(),
    "means, stacked and summed": lambda: torch.stack([ce(), logits().mean()]).sum(),
    "nothing times a sum": lambda: ce() + 0.0 * logits().sum() + 0 * WEIGHT.sum(),
    "one number": lambda: logits().mean().sum(),
    "something else's mean": lambda: logits().logsumexp(0).mean(),
}
SUMS = {
    "a sum": lambda: ce(reduction="sum"),
    "of squares": lambda: F.mse_loss(logits(), torch.zeros(5, 3), reduction="sum"),
    "of elements": lambda: ce(reduction="none").sum(),
    "by what is not the batch's size": lambda: logits().square().sum() / 3,
    "by the sum of a mask": lambda: (ce(reduction="none") * MASK).sum() / MASK.sum(),
    "one number, summed again": lambda: ce(reduction="sum").sum(),
    "the mean of one number": lambda: ce(reduction="sum").mean(),
    "the mean of one in a row": lambda: ce(reduction="sum").reshape(1).mean(dim=0),
    "beside a mean": lambda: ce() + 0.1 * logits().square().sum(),
    "a product of vectors": lambda: torch.dot(logits().flatten(), torch.ones(15)),
    "sums, stacked": lambda: torch.stack([ce(), logits().sum()]).mean() + torch.stack([ce(), logits().sum()]).sum(),
}
PARTIAL = {
    "some targets are ignored": lambda: ce(IGNORED),
    "some of each row, but others": lambda: F.cross_entropy(SCORES, torch.tensor([0, 1, -100, -100, 0, 2])),
    "all of a row": lambda: F.cross_entropy(SCORES, torch.tensor([0, 1, 2, -100, -100, -100])),
    "classes have weights": lambda: ce(weight=torch.tensor([1.0, 2, 3])),
}


@pytest.mark.parametrize("loss", MEANS.values(), ids=MEANS)
def test_a_mean_over_samples_is_nothing_to_tell(loss):
    assert own_reduction(loss()) is None


@pytest.mark.parametrize("loss", SUMS.values(), ids=SUMS)
def test_a_sum_is_told(loss):
    assert own_reduction(loss()) == SUM


@pytest.mark.parametrize("loss", PARTIAL.values(), ids=PARTIAL)
def test_so_is_a_mean_over_some_of_them(loss):
    assert own_reduction(loss()) == PARTIAL_MEAN


def test_what_is_no_loss_of_one_element_tells_nothing():
    assert own_reduction(logits()) is None
    assert own_reduction(torch.ones(())) is None
