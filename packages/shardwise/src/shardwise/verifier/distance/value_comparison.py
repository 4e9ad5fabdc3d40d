"""What the ranks' tensors make together, against what one rank has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from shardwise.interop.running.recording import Draw, Key, Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.reassemble import fold
from shardwise.types.tensor_type import TensorType

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


def together(pieces: Mapping[int, torch.Tensor], type: TensorType, *, rescaled: bool) -> dict[int, torch.Tensor]:
    """The values that the ranks' tensors make by their type, by the first rank of each.

    ``rescaled``  a pending average is a sum that is larger than what one rank has by the size of an axis: that is
                  divided out. Parameters and their gradients have to be on the scale of one rank.
    """
    factor = 1.0
    for axis in type.axes if rescaled else ():
        factor *= float(axis.size()) ** (type.exponent(axis) or 0)
    values = fold(pieces, type)
    return values if factor == 1 else {rank: (value / factor).to(value.dtype) for rank, value in values.items()}
