"""Ranks in a sentence: runs of neighbours are one span."""

from __future__ import annotations

import itertools
from collections.abc import Iterable


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-2 and 5``."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][-1] == rank - 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    # Two neighbours are listed, more are a span.
    parts = list(itertools.chain.from_iterable(
        [f"{span[0]}-{span[-1]}"] if len(span) > 2 else [str(rank) for rank in span] for span in spans
    ))  # fmt: skip
    if not parts:
        return "no rank"
    if len(parts) == 1:
        return f"rank {parts[0]}" if parts[0].isdigit() else f"ranks {parts[0]}"
    return f"ranks {', '.join(parts[:-1])} and {parts[-1]}"
