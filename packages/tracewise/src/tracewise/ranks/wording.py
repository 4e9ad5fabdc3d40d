"""Ranks, calls and times in words."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import PurePath

from tracewise.model.entities import Frame


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0, 2, 3``, ``ranks 0-6``."""
    numbers = sorted(set(ranks))
    parts: list[str] = []
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            run = numbers[start:end]
            parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            start = end
    shown = ", ".join(parts[:12]) + (f" and {len(parts) - 12} more" if len(parts) > 12 else "")
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"


def verb(ranks: Iterable[int], word: str) -> str:
    """The verb for one rank or for several."""
    return word if len(set(ranks)) > 1 else f"{word}s"


def place(frame: Frame | None) -> str:
    """`` (train.py:31)``, or nothing."""
    return f" ({PurePath(frame.file).name}:{frame.line})" if frame else ""


def seconds(ns: float) -> str:
    """Nanoseconds in words."""
    return f"{ns / 1e9:.1f} s" if ns >= 1e8 else f"{ns / 1e6:.1f} ms"


def clock_time(ns: int) -> str:
    """``12:04:31 UTC``; nothing for a time that is not known."""
    try:
        return datetime.datetime.fromtimestamp(ns / 1e9, datetime.UTC).strftime("%H:%M:%S UTC") if ns > 0 else ""
    except (OverflowError, ValueError, OSError):
        return ""


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
