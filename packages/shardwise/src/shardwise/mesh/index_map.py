"""Layouts as functions: an index, counted through nested digits, to a rank. The algebra by which meshes are cut.

``IndexMap((2, 4), (4, 1))`` counts row by row: the last digit is the fastest, as in PyTorch, NumPy and JAX. A
column-major order, as Megatron's ``tp-cp-ep-dp-pp``, is the same with its digits written backwards. Where
``layout.Layout`` is a set of ranks, here their order counts, and a mesh may number its ranks in any.

Every operation works on sizes and strides and lists no rank, so a mesh of 65,536 ranks costs what one of 8 does.
Source: the layout algebra of CuTe (NVIDIA CUTLASS 3, media/docs/cute/02_layout_algebra.md), written row-major.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

Mode = tuple[int, int]
"""One digit: its size and its stride."""


@dataclass(frozen=True, slots=True)
class IndexMap(Pictured):
    """Digits, the outermost first: ``f(i)`` is the sum of digit times stride.

    Errors: SW903 for sizes below 1, strides below 0, or as many sizes as strides.
    Example:
        >>> column_major = IndexMap((2, 4), (1, 2))
        >>> [column_major(at) for at in range(8)]
        [0, 2, 4, 6, 1, 3, 5, 7]
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        if (
            len(self.sizes) != len(self.strides)
            or any(size < 1 for size in self.sizes)
            or min(self.strides, default=0) < 0
        ):
            raise SpmdValueError(
                f"a layout has one stride, at least 0, for every size, at least 1; got {self}", code="SW903"
            )

    @classmethod
    def compact(cls, sizes: Sequence[int]) -> IndexMap:
        """The row-major numbering. Law: ``compact(s)(i) == i``."""
        return cls(tuple(sizes), tuple(math.prod(sizes[at + 1 :]) for at in range(len(sizes))))

    @classmethod
    def of_modes(cls, modes: Sequence[Mode]) -> IndexMap:
        """The map with these digits, outermost first."""
        return cls(tuple(size for size, _ in modes), tuple(stride for _, stride in modes))

    @classmethod
    def of_nested(cls, sizes: object, strides: object) -> IndexMap:
        """Sizes and strides nested alike, as CuTe writes them, digit by digit.

        Law: the map of the sizes and strides without their brackets, at any depth.
        Errors: SW903 where they are not nested alike, or are no whole numbers.
        Example:
            >>> print(IndexMap.of_nested(((2, 2), 3), ((1, 6), 2)))
            (2, 2, 3):(1, 6, 2)
        """
        return cls.of_modes(list(_leaves(sizes, strides)))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The digits, outermost first."""
        return tuple(zip(self.sizes, self.strides, strict=True))

    @property
    def size(self) -> int:
        """How many indices there are."""
        return math.prod(self.sizes)

    @property
    def reach(self) -> int:
        """One more than the largest rank."""
        return 1 + sum((size - 1) * stride for size, stride in self.modes)

    def __call__(self, index: int) -> int:
        """The rank of an index."""
        return self.at(self.digits(index))

    def at(self, digits: Sequence[int]) -> int:
        """The rank at these coordinates. Law: ``f.at(f.digits(i)) == f(i)``."""
        return sum(digit * stride for digit, stride in zip(digits, self.strides, strict=True))

    def digits(self, index: int) -> tuple[int, ...]:
        """The coordinates of an index. Law: counted up, the last one is the fastest, as in ``itertools.product``."""
        found = []
        for size in reversed(self.sizes):
            index, digit = divmod(index, size)
            found.append(digit)
        return tuple(reversed(found))

    def coalesce(self) -> IndexMap:
        """The same function in the fewest digits. Law: ``f.coalesce()(i) == f(i)``; equal functions become equal."""
        found: list[Mode] = []
        for size, stride in self.modes:
            if size == 1:
                continue
            if found and found[-1][1] == size * stride:
                size *= found.pop()[0]
            found.append((size, stride))
        return IndexMap.of_modes(found)

    def compose(self, inner: IndexMap) -> IndexMap:
        """First ``inner``, then this. Law: ``f.compose(g)(i) == f(g(i))``, with the sizes of ``g`` cut where need be.

        Errors: SW903 if ``inner`` reaches further than this counts, or steps over digits unevenly.
        """
        if inner.reach > self.size:
            raise SpmdValueError(f"{inner} reaches {inner.reach} indices, and {self} has {self.size}", code="SW903")
        modes = self.coalesce().modes or ((1, 0),)
        return IndexMap.of_modes([part for mode in inner.modes for part in _through(mode, modes, inner, self)])

    def complement(self, total: int) -> IndexMap:
        """What this leaves out of ``total`` ranks, in ascending order.

        Law: every rank below ``total`` is ``f(i) + f.complement(total)(j)`` for exactly one pair. Errors: SW903 if the
        digits overlap or ``total`` is no multiple of what they span.
        """
        reached, found = 1, list[Mode]()
        for size, stride in sorted(self.coalesce().modes, key=lambda mode: mode[1]):
            if stride == 0 or stride % reached:
                raise SpmdValueError(f"{self} has no complement: its digits overlap", code="SW903")
            found.insert(0, (stride // reached, reached))
            reached = size * stride
        if total % reached:
            raise SpmdValueError(f"{self} has no complement in {total} ranks, no multiple of {reached}", code="SW903")
        return IndexMap.of_modes([(total // reached, reached), *found]).coalesce()

    def inverse(self) -> IndexMap:
        """From rank to index. Law: ``f.inverse()(f(i)) == i``. Errors: SW903 unless it numbers 0 to n - 1 once each."""
        reached, found, inside = 1, list[Mode](), math.prod(self.sizes)
        indexed = []
        for size, stride in self.modes:
            inside //= size
            indexed.append((stride, size, inside))
        for stride, size, index_stride in sorted(one for one in indexed if one[1] > 1):
            if stride != reached:
                raise SpmdValueError(f"{self} has no inverse: it leaves ranks out or has some twice", code="SW903")
            found.insert(0, (size, index_stride))
            reached *= size
        return IndexMap.of_modes(found)

    def divide(self, tile: IndexMap) -> tuple[IndexMap, IndexMap]:
        """(which tile, where in the tile): this cut in pieces of the shape of ``tile`` (zipped division).

        Law: ``tiles(j) + inside(i)`` is every rank of this once, and ``inside(i) == f(tile(i))``. Errors: SW903.
        """
        return self.compose(tile.complement(self.size)), self.compose(tile)

    def divided(self, tile: IndexMap) -> IndexMap:
        """The same as one map, tiles outermost (logical division). Law: the same ranks, tile after tile."""
        return _joined(*self.divide(tile))

    def times(self, order: IndexMap) -> tuple[IndexMap, IndexMap]:
        """(which copy, where in the copy): copies of this, side by side as ``order`` says (zipped product).

        Law: ``copies(j) + inside(i)`` are all different, and ``inside`` is this. Errors: SW903.
        """
        whole = self._spanned() * order.reach
        return self.complement(whole).compose(order), self

    def repeated(self, order: IndexMap) -> IndexMap:
        """The same as one map, copies outermost (logical product). Law: its ranks are all different."""
        return _joined(*self.times(order))

    def _spanned(self) -> int:
        """The ranks that this and what lies between its ranks span."""
        return max((size * stride for size, stride in self.coalesce().modes), default=1)

    def flatten(self, first: int, count: int) -> IndexMap:
        """``count`` digits from ``first`` on counted as one index. Law: the same function; more digits stay where the
        strides do not fit together."""
        inner = IndexMap.of_modes(self.modes[first : first + count]).coalesce()
        return IndexMap.of_modes((*self.modes[:first], *inner.modes, *self.modes[first + count :]))

    def unflatten(self, at: int, sizes: Sequence[int]) -> IndexMap:
        """One digit as several. Law: the same function. Errors: SW903 if ``sizes`` do not multiply to its size."""
        size, stride = self.modes[at]
        if math.prod(sizes) != size:
            raise SpmdValueError(
                f"{list(sizes)} multiply to {math.prod(sizes)}, and the digit has {size}", code="SW903"
            )
        cut = [(one, stride * math.prod(sizes[at + 1 :])) for at, one in enumerate(sizes)]
        return IndexMap.of_modes((*self.modes[:at], *cut, *self.modes[at + 1 :]))

    def __str__(self) -> str:
        shown = [
            f"({', '.join(map(str, one))})" if len(one) != 1 else str(one[0]) for one in (self.sizes, self.strides)
        ]
        return ":".join(shown)


def index_map_of(ranks: Sequence[int], sizes: Sequence[int]) -> IndexMap | None:
    """The map of a mesh whose ranks are listed row by row, as a DeviceMesh or JAX's Mesh lists its devices.

    None if they follow no strides. Law: ``index_map_of(ranks of f, f.sizes)`` is the function f.
    Example:
        >>> print(index_map_of([0, 2, 4, 6, 1, 3, 5, 7], (2, 4)))
        (2, 4):(1, 2)
    """
    steps = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    strides = tuple(ranks[step] - ranks[0] if size > 1 else 0 for size, step in zip(sizes, steps, strict=True))
    if any(stride < 0 for stride in strides):
        return None
    found = IndexMap(tuple(sizes), strides)
    return found if [ranks[0] + found(at) for at in range(found.size)] == list(ranks) else None


def _leaves(sizes: object, strides: object) -> Iterator[Mode]:
    if isinstance(sizes, (tuple, list)) and isinstance(strides, (tuple, list)):
        if len(sizes) != len(strides):
            raise SpmdValueError(
                f"a layout needs one stride per size, got sizes {shown(sizes)} and strides {shown(strides)}",
                code="SW903",
            )
        for size, stride in zip(sizes, strides, strict=True):
            yield from _leaves(size, stride)
    elif type(sizes) is int and type(strides) is int:
        if sizes < 1 or strides < 0:
            raise SpmdValueError(
                f"a size of a layout is at least 1 and a stride at least 0, got size {sizes} with stride {strides}",
                code="SW903",
            )
        yield sizes, strides
    else:
        raise SpmdArgumentError(
            f"sizes and strides of a layout are whole numbers nested alike, got size {shown(sizes)} with stride "
            f"{shown(strides)}",
            code="SW903",
        )


def _joined(outer: IndexMap, inner: IndexMap) -> IndexMap:
    return IndexMap.of_modes((*outer.modes, *inner.modes))


def _through(mode: Mode, modes: Sequence[Mode], inner: IndexMap, outer: IndexMap) -> Iterator[Mode]:
    """One digit of the inner map seen through the digits of the outer one, outermost first."""
    count, step = mode
    if step == 0 or count == 1:
        return iter([(count, 0)])
    found: list[Mode] = []
    for at, (size, stride) in enumerate(reversed(modes)):
        last = at == len(modes) - 1
        if not last and step % size == 0:
            step //= size
            continue
        if not last and size % step:
            raise _uneven(inner, outer)
        taken = count if last else min(count, size // step)
        if count % taken:
            raise _uneven(inner, outer)
        found.append((taken, step * stride))
        count, step = count // taken, 1
        if count == 1:
            break
    return reversed(found)


def _uneven(inner: IndexMap, outer: IndexMap) -> SpmdValueError:
    return SpmdValueError(f"{inner} steps over the digits of {outer} unevenly, so they do not compose", code="SW903")
