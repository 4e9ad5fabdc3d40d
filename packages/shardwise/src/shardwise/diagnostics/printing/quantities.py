"""Bytes and durations in words, the same in every text, page and picture."""

from __future__ import annotations


def byte_count(count: float) -> str:
    """In the unit that reads best, of 1024 of the one before.

    Example:
        >>> byte_count(0), byte_count(1536), byte_count(16650000)
        ('0 B', '1.5 KiB', '15.88 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def duration(seconds: float) -> str:
    """In the unit that reads best.

    Example:
        >>> duration(0.0), duration(0.0001665), duration(0.0042)
        ('0 s', '166.5 us', '4.2 ms')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0 s"
