"""From where on do the run on the mesh and the run on one rank do different work? What follows is not compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from shardwise.interop.running.recording import Draw, Key, Record

from ..distance.difference import is_same
from ..distance.numbers import Parting


class Partings:
    """Why the runs part, and the random numbers that say so. ``first`` is the reason that comes first."""

    def __init__(self) -> None:
        self.first: Parting | None = None
        self.just_drawn = False
        """Accidents were drawn since the last declared tensor, which is likely made of them."""
        self._accidents: set[tuple[int, ...]] = set()
        """Shapes of random numbers that are alike in all runs only because nobody seeded their generator."""

    def add(self, key: Key, reason: str, advice: str = "") -> None:
        """From ``key`` on the runs differ, if they have not before."""
        if self.first is None:
            self.first = Parting(key, reason, advice)

    def forget_draws(self) -> None:
        """Draws that differed do not matter, as what was made of them turned out alike."""
        if self.first is not None and self.first.key.kind == "drawn":
            self.first = None

    def draw(self, key: Key, draws: Sequence[Draw | Record | None]) -> None:
        """The same draw in every run, None where a run does not have it: the runs part where it is another.

        The last is that of the run on one rank, which may have been given what the ranks drew.
        """
        first, alone = draws[0], draws[-1]
        if isinstance(alone, Draw) and alone.given:
            return
        for draw in draws:
            if not isinstance(draw, Draw) or not isinstance(first, Draw):
                self.add(key, f"{key.name} draws random numbers in some of the runs only")
            elif draw.shape != first.shape:
                self.add(key, f"{key.name} draws {list(first.shape)} random numbers here, {list(draw.shape)} there")
            elif draw.state != first.state:
                self.add(key, f"{key.name} draws from generators that are in different states")
            elif not draw.seeded:
                self._accidents.add(draw.shape)
                self.just_drawn = True

    def grows(self, pieces: Mapping[int, torch.Tensor], expected: torch.Tensor) -> bool:
        """True if every rank has drawn the numbers that one rank alone draws, by accident: the program's size is its
        own, and has nothing to do with the mesh."""
        drawn = self.just_drawn or tuple(expected.shape) in self._accidents
        return drawn and all(is_same(piece, expected) for piece in pieces.values())
