"""The outputs of modules replaced by those of the run on one rank, so that errors do not pile up with depth.

Each rank looks for what it holds in the one-rank output: the place whose values are nearest. What is nowhere near (a
pending sum, a wrong result) stays as it is.
"""

from __future__ import annotations

import torch

from shardwise.interop.running.recording import Key

from ..layouts.places import Place, nearest_place, taken
from ..records.intervention import Intervention

NEAR = 0.25
"""How far a piece may be from what it is taken for: root mean squares, relative to that of the piece."""


class Feeding:
    """Puts module outputs right, in place."""

    def __init__(self, intervention: Intervention) -> None:
        self._fed = intervention.fed
        self._places: dict[str, Place] = {}

    def correct(self, key: Key, output: torch.Tensor) -> None:
        """Replace the values of ``output``, which has been recorded under ``key``."""
        whole = self._fed.get(key)
        if whole is None or whole.dtype != output.dtype or not all(output.stride()):
            return
        with torch.no_grad():
            here = output.detach()
            place = nearest_place(here.cpu(), whole, NEAR, self._places.get(key.name))
            if place is not None:
                self._places[key.name] = place
                here.copy_(taken(whole, place))
