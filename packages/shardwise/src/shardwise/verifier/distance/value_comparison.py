"""What the ranks' tensors make together, against what one rank has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from shardwise.interop.running.recording import Draw, Key, Record
from shardwise.mesh.axis import MeshAxis

from .difference import Difference, difference
from .hints import hint_for
from .numbers import Against, NotCompared, ValueDisagreement
from .tolerance import Tolerance

Entries = Mapping[Key, Record | Draw]
Verdict = ValueDisagreement | NotCompared | str
"""Also ``equal``, ``replicas`` or ``missing``."""


class ValueComparison:
    """Compares by a tolerance, and says of a difference what may have made it.

    ``apart``      how far the elements of a record may be apart, given its key, the tensors, and its key on one rank.
    ``tolerance``  knows which elements of trained parameters are made of noise.
    """

    def __init__(
        self,
        names: Mapping[MeshAxis, str],
        apart: Callable[[Key, Sequence[torch.Tensor], Key], float],
        tolerance: Tolerance,
    ) -> None:
        self.names, self.apart, self.tolerance = names, apart, tolerance

    def against(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], value: torch.Tensor, there: Record
    ) -> ValueDisagreement | None:
        """What is wrong with ``value``, which ``pieces`` make together; None if it is what one rank has."""
        expected = there.value
        assert expected is not None, "what is compared has a value"
        if value.shape != expected.shape:
            said = f"is {list(value.shape)} together, and {list(expected.shape)} on one rank"
            return ValueDisagreement(key, first.claim, Against.SHAPE, 0, tuple(pieces), (), (), None, said)
        apart = self.apart(key, (value, expected, *pieces.values()), there.key)
        found = difference(value, expected, apart, self.tolerance.typical(there.key, expected))
        if found is None:
            return None
        return self._differs(key, first, pieces, found)

    def _differs(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], found: Difference
    ) -> ValueDisagreement:
        hint = hint_for(found.factor, found.total, self.names)
        said = "differs from the run on one rank"
        rank = min(pieces)
        return ValueDisagreement(
            key, first.claim, Against.ALONE, rank, (rank,), found.index, found.index, found, said, hint
        )
