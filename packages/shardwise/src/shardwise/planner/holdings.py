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
MOST_AXES = 5
"""Of so many axes the ways to divide all of them among dims are seen at once, of more only those that are asked for."""


class Holdings:
    """The lengths of the first rank's part.

    ``dims``   those that axes whose dims are not known may cut.
    ``even``   every dim is cut evenly, whatever axes cut it.
    ``whole``  the elements of the tensor.
    ``few``    all axes, if there are few.
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
        self.few = (
            (1 << len(sizes)) - 1 if len(sizes) <= MOST_AXES else None
        )  # all, where all sets of them are soon seen
        self.ranks = _Products(sizes)
        self.lengths = [_Lengths(length, self.ranks) for length in shape]
        self.anywhere = _Anywhere(self)
        self._least: dict[tuple[Dims, int, int, int], int] = {}
        self._spreads: dict[tuple[tuple[int, ...], int], dict[int, int]] = {}

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
        alone = math.prod([self.lengths[dim][axes] for dim, axes in enumerate(cut) if dim not in self.dims])
        bare = tuple([dim for dim in self.dims if not cut[dim] and not (barred and off >> dim & 1)])
        held = self._spread(bare, self.few or free)
        if len(bare) == len(self.dims):
            return alone * held[free]
        *dims, last = [dim for dim in self.dims if dim not in bare]
        for dim in dims:
            can = free & ~barred if off >> dim & 1 else free
            held = _grown(held, {some: self.lengths[dim][cut[dim] | some] for some in parts_of(can)}, free)
        lengths, axes, can = self.lengths[last], cut[last], free & ~barred if off >> last & 1 else free
        return alone * min([held[free ^ some] * lengths[axes | some] for some in parts_of(can) if free ^ some in held])

    def _spread(self, dims: tuple[int, ...], axes: int) -> dict[int, int]:
        """By sets of ``axes``, the least product of the lengths of ``dims`` that they cut, and no other axes."""
        found = self._spreads.get((dims, axes))
        if found is None:
            if dims:
                lengths = self.lengths[dims[-1]]
                found = _grown(self._spread(dims[:-1], axes), {some: lengths[some] for some in parts_of(axes)}, axes)
            else:
                found = {0: 1}
            self._spreads[dims, axes] = found
        return found


def _grown(held: dict[int, int], pieces: dict[int, int], free: int) -> dict[int, int]:
    """The same with one more dim: ``pieces`` are its lengths by the axes that may cut it."""
    if len(held) == 1:
        return {some: held[0] * length for some, length in pieces.items()}
    grown = {}
    for placed in parts_of(free):
        parts = parts_of(placed)
        ways = [held[placed ^ some] * pieces[some] for some in parts if some in pieces and placed ^ some in held]
        if ways:
            grown[placed] = min(ways)
    return grown


class _Anywhere(dict[int, int]):
    """By a set of axes, the least that a rank can hold where they cut, each any dim."""

    def __init__(self, holdings: Holdings) -> None:
        super().__init__()
        self.holdings = holdings

    def __missing__(self, axes: int) -> int:
        holdings = self.holdings
        if holdings.even:
            found = self[axes] = holdings.whole // holdings.ranks[axes]
        else:
            found = self[axes] = holdings.least((0,) * len(holdings.lengths), axes)
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
