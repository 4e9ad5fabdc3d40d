"""Products that sum over shared dims."""

from __future__ import annotations

from ..labels import Labeller, signature

LABELS: dict[str, Labeller] = {
    "matmul": signature("*b m k, *b k n -> *b m n"),
    "linear": signature("*b k, n k, n -> *b n"),
}
