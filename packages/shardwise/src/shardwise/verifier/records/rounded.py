"""How far roundings move what a run records, as runs with such errors have shown (``roundings.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardwise.interop.running.recording import Key


@dataclass(frozen=True)
class Moved:
    """How far a tensor has moved: its farthest element, and all elements by their root mean square."""

    largest: float
    rms: float


Spread = Mapping[Key, Moved]
