"""Rows of a shard that are numbered to read one element of each, against one device, and their like that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .on_ranks import Case, drawn, judge, shard, whole

pytestmark = pytest.mark.processes

X, LOGITS = drawn(8, 5, 4), drawn(8, 5, seed=1)
AT = torch.tensor([1, 2, 3, 4, 1, 2, 3, 0])
PAIRS = torch.stack([AT, 4 - AT], 1)
SOME = torch.tensor([0, 2])
ALL = torch.arange(8)
Way = Callable[[Tensor], Any]


def rows(x: Tensor, dim: int = 0) -> Tensor:
    return torch.arange(x.shape[dim])


def written(numbers: Tensor) -> Tensor:
    return numbers.add_(1).remainder_(4)


def gradients(x: Tensor, w: Tensor, read: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    read(x * w).square().sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    return x.grad, w.grad


def leaf(x: Tensor) -> Tensor:
    return x.clone().requires_grad_()


RIGHT: list[tuple[str, Callable[[], Any], Any]] = [
    ("the last token", lambda: (lambda x: x[rows(x), shard(AT) - 1])(shard(X)), X[ALL, AT - 1]),
    ("the targets' logits", lambda: (lambda x: -x.log_softmax(-1)[rows(x), shard(AT)].mean())(shard(LOGITS)),
     -LOGITS.log_softmax(-1)[ALL, AT].mean()),
    ("several of each", lambda: (lambda x: x[rows(x)[:, None], shard(PAIRS)])(shard(X)), X[ALL[:, None], PAIRS]),
    ("as a view", lambda: (lambda x: x[rows(x).view(-1, 1), shard(PAIRS)])(shard(X)), X[ALL[:, None], PAIRS]),
    ("expanded", lambda: (lambda x: x[rows(x)[:, None].expand(-1, 2), shard(PAIRS)])(shard(X)), X[ALL[:, None], PAIRS]),
    ("the same of each", lambda: (lambda x: x[rows(x)[:, None], whole(SOME)])(shard(X)), X[ALL[:, None], SOME]),
    ("a slice between", lambda: (lambda x: x[rows(x), :, shard(AT) - 1])(shard(X)), X[ALL, :, AT - 1]),
    ("another dim", lambda: (lambda x: x[shard(AT), rows(x, 1)])(shard(X.transpose(0, 1), 1)), X[ALL, AT]),
    ("nothing else", lambda: (lambda x: x[rows(x)])(shard(X)), X),
    ("gradients", lambda: gradients(shard(leaf(LOGITS)), whole(leaf(LOGITS[0])), lambda y: y[rows(y), shard(AT)]),
     gradients(leaf(LOGITS), leaf(LOGITS[0]), lambda y: y[ALL, AT])),
]  # fmt: skip

WRONG: dict[str, Way] = {
    "one row less": lambda x: x[torch.arange(x.shape[0] - 1), shard(AT)[:-1]],
    "backwards": lambda x: x[rows(x).flip(0), shard(AT)],
    "the next row": lambda x: x[(rows(x) + 1) % 4, shard(AT)],
    "written since": lambda x: x[written(rows(x)), shard(AT)],
    "a number that is written": lambda x: x[torch.arange(4), shard(AT)],
    "of a whole index": lambda x: x[rows(x), whole(AT[:4])],
    "along the other dim of the index": lambda x: x[rows(x)[None], shard(PAIRS)[:, :1]],
    "of another tensor": lambda x: whole(X)[rows(x), shard(AT)],
}


@pytest.mark.parametrize("case", [Case(*row) for row in RIGHT], ids=str)
def test_one_element_of_each_row_is_cut_like_the_rows(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("name", WRONG)
def test_other_rows_are_refused(name: str) -> None:
    code = "SW402" if name == "of another tensor" else "SW405"
    judge(Case(name, lambda: WRONG[name](shard(X)), code=code))
