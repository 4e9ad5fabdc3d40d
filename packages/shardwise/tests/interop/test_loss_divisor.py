"""By what is a loss divided? Told by its graph, for the ways in which programs take a mean."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from shardwise.interop.autograd.loss_divisor import divisor_of

TARGETS = torch.tensor([0, 1, -100, 2, -100, 3])
MASK = (TARGETS != -100).float()


def each(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, TARGETS, reduction="none")


@pytest.mark.parametrize(
    ("loss", "divisor"),
    [
        (lambda x: F.cross_entropy(x, TARGETS), 4.0),
        (lambda x: F.cross_entropy(x.view(1, 6, 5).transpose(1, 2), TARGETS[None]), 4.0),
        (lambda x: F.cross_entropy(x, TARGETS) / 2, 8.0),
        (lambda x: 0.5 * F.cross_entropy(x, TARGETS).float(), 4.0),
        (lambda x: F.cross_entropy(x.to(torch.bfloat16), TARGETS), 4.0),
        (lambda x: F.cross_entropy(x, TARGETS, reduction="sum") / 7, 7.0),
        (lambda x: (each(x) * MASK).sum() / MASK.sum(), 4.0),
        (lambda x: (each(x) * MASK).sum() / MASK.sum().clamp(min=1), 4.0),
        (lambda x: x.square().mean(), 30.0),
        (lambda x: -x.mean(), 30.0),
        (lambda x: F.cross_entropy(x, TARGETS) + 0.1 * x.square().mean(), None),
        (lambda x: x.square().sum(), None),
        (lambda x: x.square().sum().sqrt(), None),
    ],
)
def test_the_graph_of_a_loss_tells_what_it_was_divided_by(loss, divisor):
    assert divisor_of(loss(torch.linspace(-1, 1, 30).view(6, 5).requires_grad_())) == divisor


def test_a_tensor_without_a_graph_tells_nothing():
    assert divisor_of(torch.tensor(1.0)) is None


def test_a_graph_that_is_used_up_tells_nothing():
    x = torch.ones(6, 5, requires_grad=True)
    loss = (each(x) * MASK).sum() / MASK.sum()
    loss.backward()
    assert divisor_of(loss) is None
