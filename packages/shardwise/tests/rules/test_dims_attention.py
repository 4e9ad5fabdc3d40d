"""What the book says about sharded attention, against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from .global_book import differences, shown
from .values import real

torch.set_num_threads(1)

sdpa = F.scaled_dot_product_attention
Q, K, V = (4, 4, 6, 3), (4, 4, 6, 3), (4, 4, 6, 6)
GROUPED = ((4, 12, 4, 3), (4, 6, 4, 3), (4, 6, 4, 3))

CASES: list[tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    ("plain", sdpa, (Q, K, V)),
    ("without heads", sdpa, (Q[1:], K[1:], V[1:])),
    ("one head of keys", sdpa, (Q, (4, 1, 6, 3), (4, 1, 6, 6))),
    ("causal", lambda *x: sdpa(*x, is_causal=True), (Q, K, V)),
    ("mask", sdpa, (Q, K, V, (6, 6))),
    ("mask per sample", sdpa, (Q, K, V, (4, 1, 6, 6))),
    ("mask per head", sdpa, (Q, K, V, (1, 4, 6, 6))),
    ("one row of the mask for all", sdpa, (Q, K, V, (1, 6))),
    ("grouped", lambda *x: sdpa(*x, enable_gqa=True), GROUPED),
    ("grouped and causal", lambda *x: sdpa(*x, enable_gqa=True, is_causal=True), GROUPED),
]


@pytest.mark.parametrize(("name", "fn", "shapes"), CASES, ids=[name for name, _, _ in CASES])
def test_attention(name: str, fn: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    assert shown(differences(fn, *[real(*shape) for shape in shapes])) == []
