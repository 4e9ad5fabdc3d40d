"""How much a rank holds of a tensor that axes cut, and the least that it can where their dims are not all known.

Sets of axes are bits. A shard is what ``torch.chunk`` cuts, so a dim that axes cut one inside the other is as
long, on the rank that stands first in everything, as if one axis with all their ranks cut it: their order plays no
part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .cuts import parts_of

Dims = tuple[int, ...]
"""For every tensor dim the axes that cut it, as bits."""
NOWHERE = -1
"""What no rank can hold."""
MOST_WAYS = 300
"""So many ways to divide axes among dims are looked at, to see how little a rank can hold."""


class Holdings:
    """The lengths of the first rank's part.

    ``dims``   those that axes whose dims are not known may cut.
    ``even``   every dim is cut evenly, whatever axes cut it.
    ``whole``  the elements of the tensor.
    Example:
        >>> held = Holdings((2, 4), (6, 9), dims=(0, 1), even=False)
        >>> held.elements((0b01, 0b10))  # the first axis cuts dim 0: 3 times 3
        9
        >>> held.least((0b01, 0), 0b10), held.least((0b01, 0), 0b10, barred=0b10, off=0b01)
        (9, 9)
    """

    def __init__(self, sizes: tuple[int, ...], shape: tuple[int, ...], dims: tuple[int, ...], *, even: bool) -> None:
        self.dims, self.even = dims, even
        self.whole = math.prod(shape)
        self.ranks = _Products(sizes)
        self.lengths = [_Lengths(length, self.ranks) for length in shape]
        self.anywhere = _Anywhere(self)
        self._least: dict[tuple[Dims, int, int, int], int] = {}

    def elements(self, cut: Dims) -> int:
        """How many elements the first rank holds."""
        return math.prod([lengths[axes] for lengths, axes in zip(self.lengths, cut, strict=True)])

    def least(self, cut: Dims, free: int, barred: int = 0, off: int = 0) -> int:
        """The least where the axes ``free`` cut too, each any dim, but those ``barred`` none of ``off``, dims as bits.

        NOWHERE if no dim is left to those.
        """
        key = cut, free, barred, off
        found = self._least.get(key)
        if found is None:
            found = self._least[key] = self._look(cut, free, barred, off)
        return found

    def _look(self, cut: Dims, free: int, barred: int, off: int) -> int:
        if barred and all(off >> dim & 1 for dim in self.dims):
            return NOWHERE
        if not free:
            return self.elements(cut)
        if self.even or len(self.dims) ** free.bit_count() > MOST_WAYS:
            return -(-self.elements(cut) // self.ranks[free])
        alone = [self.lengths[dim][axes] for dim, axes in enumerate(cut) if dim not in self.dims]
        held = {0: math.prod(alone)}  # by those of ``free`` that cut dims seen so far, the least product of the lengths
        for dim in self.dims[:-1]:
            lengths, axes, can = self.lengths[dim], cut[dim], free & ~barred if off >> dim & 1 else free
            before, held = held, {}
            for placed, count in before.items():
                for some in parts_of(can & ~placed):
                    now = count * lengths[axes | some]
                    if now < held.get(placed | some, now + 1):
                        held[placed | some] = now
        last = self.dims[-1]
        lengths, axes, barred = self.lengths[last], cut[last], barred if off >> last & 1 else 0
        return min([count * lengths[axes | free & ~placed] for placed, count in held.items() if not barred & ~placed])


class _Anywhere(dict[int, int]):
    """By a set of axes, the least that a rank can hold where they cut, each any dim."""

    def __init__(self, holdings: Holdings) -> None:
        super().__init__()
        self.holdings = holdings

    def __missing__(self, axes: int) -> int:
        found = self[axes] = self.holdings.least((0,) * len(self.holdings.lengths), axes)
        return found


class _Products(dict[int, int]):
    """By a set of axes, how many ranks they have together."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__({0: 1})
        self.sizes = sizes

    def __missing__(self, axes: int) -> int:
        found = self[axes] = self[axes & (axes - 1)] * self.sizes[(axes & -axes).bit_length() - 1]
        return found


class _Lengths(dict[int, int]):
    """Of one dim: by the axes that cut it, how long the first rank's part is."""

    def __init__(self, length: int, ranks: _Products) -> None:
        super().__init__({0: length})
        self.length, self.ranks = length, ranks

    def __missing__(self, axes: int) -> int:
        found = self[axes] = -(-self.length // self.ranks[axes])
        return found
