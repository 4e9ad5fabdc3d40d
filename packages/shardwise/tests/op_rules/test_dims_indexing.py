"""Reading and writing by position in global mode: what the rules say is what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .agreement import assert_agreement, randn

EXCEPT = ("SW110", "SW112", "SW113", "SW114")
"""SW113: where everything is overwritten, the destination's own value does not matter; no row says so."""
X = randn((4, 5, 2))
MASK = torch.tensor([True, False, True, True])
MASK2 = (torch.arange(20) % 3 == 0).reshape(4, 5)


def ids(high: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, high, shape, generator=generator)


Call = tuple[Callable[..., Any], list[torch.Tensor], int]

READS: dict[str, Call] = {
    "number": (lambda x: x[1], X, 3),
    "last number": (lambda x: x[..., -1], X, 3),
    "range": (lambda x: x[:, 1:3], X, 3),
    "whole ranges": (lambda x: x[:, 0:, ::1], X, 4),
    "new dim": (lambda x: x[:, None, ..., None], X, 4),
    "list": (lambda x: x[[0, 2]], X, 3),
    "lists": (lambda x: x[[0, 2], :, [1, 0]], X, 2),
    "truths": (lambda x: x[[True, False, True, False]], X, 3),
    "truth": (lambda x: x[True], X, 4),
    "number and list": (lambda x: x[0, :, [1, 0]], X, 2),
    "positions": (lambda x, i: x[i], [*X, ids(2, 4)], 4),
    "two dims of positions": (lambda x, i: x[:, i], [*X, ids(2, 4, 2)], 5),
    "scalar position": (lambda x, i: x[i], [*X, ids(2)], 3),
    "scalar position between": (lambda x, i, j: x[i, :, j], [*X, ids(2), ids(2, 4)], 3),
    "neighbours": (lambda x, i, j: x[:, i, j], [*X, ids(2, 4), ids(2, 4)], 3),
    "apart": (lambda x, i, j: x[i, :, j], [*X, ids(2, 4), ids(2, 4)], 3),
    "apart by a new dim": (lambda x, i, j: x[i, None, j], [*X, ids(2, 4), ids(2, 4)], 3),
    "broadcast": (lambda x, i, j: x[i, j], [*X, ids(2, 4, 1), ids(2, 5)], 4),
    "mask": (lambda x, m: x[m], [*X, MASK], 3),
    "mask behind": (lambda x, m: x[:, :, m], [*randn((2, 5, 4)), MASK], 3),
    "mask of two dims": (lambda x, m: x[m], [*X, MASK2], 2),
    "mask and positions": (lambda x, m, i: x[m, i], [*X, MASK, ids(2, 3)], 2),
    "aten": (lambda x, i: torch.ops.aten.index(x, [None, i]), [*X, ids(2, 4)], 4),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", READS)
def test_reading_is_placed_as_the_numbers_say(name: str) -> None:
    fn, tensors, at_least = READS[name]
    assert_agreement(fn, tensors, at_least=at_least, except_for=EXCEPT)


def written(index: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Writes the last operand into a copy of the first, at the index made of the others."""

    def fn(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[index(*rest[:-1])] = rest[-1]
        return x

    return fn


def filled(value: float, index: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Writes a number."""

    def fn(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[index(*rest)] = value
        return x

    return fn


WRITES: dict[str, Call] = {
    "number": (written(lambda: 1), [*X, *randn((5, 2))], 3),
    "range": (written(lambda: (slice(None), slice(1, 3))), [*X, *randn((4, 2, 2))], 3),
    "everything": (written(lambda: ...), [*X, *randn((4, 5, 2))], 4),
    "broadcast": (written(lambda: slice(None)), [*X, *randn((5, 1))], 4),
    "positions": (written(lambda i: i), [*X, torch.tensor([0, 2, 3]), *randn((3, 5, 2))], 3),
    "mask": (written(lambda m: m), [*X, MASK, *randn((3, 5, 2))], 3),
    "mask, one value": (filled(3.0, lambda m: m), [*X, MASK], 4),
    "mask, zero": (filled(0.0, lambda m: m), [*X, MASK], 4),
    "mask behind": (filled(3.0, lambda m: (slice(None), slice(None), m)), [*randn((2, 5, 4)), MASK], 3),
    "mask, a row": (written(lambda m: m), [*X, MASK, *randn((5, 2))], 3),
    "mask of two dims": (filled(3.0, lambda m: m), [*X, MASK2], 4),
    "aten": (lambda x, i, v: torch.index_put(x, (i,), v), [*X, torch.tensor([0, 2, 3]), *randn((3, 5, 2))], 3),
    "added": (lambda x, i, v: x.index_put((i,), v, accumulate=True), [*X, ids(3, 4), *randn((4, 5, 2))], 3),
    "added to zeros": (
        lambda i, v: torch.zeros(3, 2, dtype=v.dtype).index_put((i,), v, accumulate=True),
        [ids(3, 4), *randn((4, 2))],
        3,
    ),
}  # fmt: skip


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", WRITES)
def test_writing_is_placed_as_the_numbers_say(name: str) -> None:
    fn, tensors, at_least = WRITES[name]
    assert_agreement(fn, tensors, at_least=at_least, except_for=EXCEPT)
