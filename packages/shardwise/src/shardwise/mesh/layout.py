"""Which ranks belong to an axis, and how do two axes lie to each other? The algebra of layouts.

A layout is a set of rank offsets from 0 written as atoms ``size:stride``, outermost (largest stride) first: ``4:2`` is
{0, 2, 4, 6}, and ``(2, 2):(4, 1)`` is {0, 1, 4, 5}. Every stride is larger than the span of the atoms inside it, so
counting through the atoms like digits visits the ranks in ascending order, and adjoining atoms are coalesced
(``(2, 2):(2, 1)`` is written ``4:1``). Under these two conditions a set of ranks has exactly one layout, so equal
layouts are equal sets, and every question below is answered on atoms.

Source: hierarchical layouts as in CuTe, restricted to increasing injective ones, in row-major order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

Atom = tuple[int, int]
"""One (size, stride)."""


@dataclass(frozen=True, slots=True)
class Layout(Pictured):
    """A set of rank offsets. The arguments may be ints or nested tuples in any order; they are put in normal form.

    Errors: SW903 if a size or stride is not positive, or if the atoms overlap.
    Example:
        >>> pairs = Layout((2, 4), (8, 1))
        >>> pairs.numel(), sorted(pairs.ranks())
        (8, [0, 1, 2, 3, 8, 9, 10, 11])
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __init__(self, sizes: object = (), strides: object = ()) -> None:
        atoms = coalesce(_checked_atoms(sizes, strides))
        if not are_orthogonal(atoms):
            raise SpmdValueError(
                f"the layout {_format(sizes)}:{_format(strides)} counts some ranks twice: every stride must be larger "
                f"than the span of the smaller ones",
                code="SW903",
            )
        object.__setattr__(self, "sizes", tuple(size for size, _ in atoms))
        object.__setattr__(self, "strides", tuple(stride for _, stride in atoms))

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """(size, stride) pairs, outermost first."""
        return tuple(zip(self.sizes, self.strides, strict=True))

    def numel(self) -> int:
        """How many ranks."""
        return math.prod(self.sizes)

    def span(self) -> int:
        """The largest offset."""
        return span(self.atoms)

    def ranks(self) -> Iterator[int]:
        """The offsets in ascending order. For printing and for building groups; no decision is made from it."""
        return _ranks(self.atoms)

    def place(self, rank: int) -> int:
        """Where ``rank`` stands among the ranks of its fiber, counted from 0: of 5 on the axis 2:4, 1.

        Law: the rank that is this far from the first is the one at this place of ``ranks()``.
        """
        found = 0
        for size, stride in self.atoms:
            found = found * size + rank // stride % size
        return found

    def offset(self, rank: int) -> int:
        """How far ``rank`` lies from the first one of its fiber: 5 on the axis 2:4 lies 4 from rank 1.

        Law: over a fiber, which is the first rank plus ``ranks()``, these are ``ranks()``.
        """
        return sum(rank // stride % size * stride for size, stride in self.atoms)

    def fiber(self, rank: int) -> tuple[int, ...]:
        """The ranks among which ``rank`` stands, in ascending order: of 5 on the axis 2:4, (1, 5).

        Law: the first is ``rank - offset(rank)``, and the others are as far from it as ``ranks()`` says.
        """
        first = rank - self.offset(rank)
        return tuple(first + offset for offset in self.ranks())

    def issubset(self, other: Layout) -> bool:
        """Whether every rank of this layout is one of ``other``'s, whatever atoms of it a step crosses.

        Law: inclusion of the sets of ranks.
        """
        return self.numel() <= other.numel() and _inside(0, self.atoms, other.atoms)

    def isorthogonal(self, *others: Layout) -> bool:
        """Whether all these layouts together are independent digits of one numbering of ranks.

        Law: counted through in the order of their strides, they visit ranks in ascending order, each once.
        """
        return are_orthogonal(sorted_atoms(atom for layout in (self, *others) for atom in layout.atoms))

    def merge(self, *others: Layout) -> Layout:
        """The flattening of mutually orthogonal layouts. Errors: SW903.

        Law: its ranks are the sums of one from each.
        """
        layouts = (self, *others)
        return Layout(
            tuple(size for layout in layouts for size in layout.sizes),
            tuple(stride for layout in layouts for stride in layout.strides),
        )

    def divide(self, part: Layout) -> Layout | None:
        """What is left when ``part`` is taken out; None if ``part`` is not a factor of this layout.

        Law: ``part.merge(rest)`` is this layout.
        """
        rest = list(self.atoms)
        for size, stride in part.atoms:
            # Coalesced atoms do not adjoin, so an atom of a factor lies within one atom of the whole.
            for index, (whole_size, whole_stride) in enumerate(rest):
                inner, uneven = divmod(stride, whole_stride)
                if not uneven and inner and whole_size % (inner * size) == 0:
                    outer = whole_size // (inner * size)
                    rest[index : index + 1] = [(outer, stride * size), (inner, whole_stride)]
                    break
            else:
                return None
        return _from_atoms(rest)

    def __str__(self) -> str:
        if not self.sizes:
            return "1:1"
        return f"{_format(self.sizes)}:{_format(self.strides)}"


def layout_of_ranks(ranks: Sequence[int]) -> Layout | None:
    """The layout of these ranks, shifted to begin at 0; None if they do not form one.

    Law: ``layout_of_ranks([start + rank for rank in layout.ranks()]) == layout``.
    """
    rest = sorted(ranks)
    rest = [rank - rest[0] for rank in rest]
    atoms: list[Atom] = []
    while len(rest) > 1:
        stride = rest[1]
        size = next((i for i, rank in enumerate(rest) if rank != i * stride), len(rest))
        outer = rest[::size]
        if stride == 0 or len(rest) % size:
            return None
        if any(rank != outer[i // size] + i % size * stride for i, rank in enumerate(rest)):
            return None
        atoms.append((size, stride))
        rest = outer
    return _from_atoms(atoms)


def sorted_atoms(atoms: Iterable[Atom]) -> list[Atom]:
    """Without the atoms of size 1, outermost first."""
    return sorted((atom for atom in atoms if atom[0] != 1), key=lambda atom: (-atom[1], -atom[0]))


def coalesce(atoms: Iterable[Atom]) -> list[Atom]:
    """Sorted, and atoms that adjoin made one: ``(n, m*t), (m, t)`` is ``(n*m, t)``."""
    result: list[Atom] = []
    for size, stride in sorted_atoms(atoms):
        if result and result[-1][1] == size * stride:
            size *= result.pop()[0]
        result.append((size, stride))
    return result


def span(atoms: Iterable[Atom]) -> int:
    """The largest sum of one offset per atom."""
    return sum((size - 1) * stride for size, stride in atoms)


def are_orthogonal(atoms: Sequence[Atom]) -> bool:
    """Whether sorted atoms are independent digits: each begins strictly beyond the span of the smaller ones."""
    reached = 0
    for size, stride in reversed(atoms):
        if stride <= reached:
            return False
        reached += (size - 1) * stride
    return True


def _from_atoms(atoms: Iterable[Atom]) -> Layout:
    atoms = list(atoms)
    return Layout(tuple(size for size, _ in atoms), tuple(stride for _, stride in atoms))


def _ranks(atoms: tuple[Atom, ...]) -> Iterator[int]:
    if not atoms:
        yield 0
        return
    size, stride = atoms[0]
    for digit in range(size):
        for inner in _ranks(atoms[1:]):
            yield digit * stride + inner


def _inside(offset: int, atoms: Sequence[Atom], whole: Sequence[Atom]) -> bool:
    """Whether ``offset`` plus every sum over ``atoms`` is a sum over ``whole``."""
    if offset + span(atoms) > span(whole):
        return False
    return not whole or _residues_inside(offset, atoms, whole[0][1], whole[1:])


def _residues_inside(offset: int, atoms: Sequence[Atom], modulus: int, whole: Sequence[Atom]) -> bool:
    """The same of what is left of the sums modulo ``modulus``, which is beyond the span of ``whole``."""
    offset, atoms = _residues(offset, atoms, modulus)
    if offset + span(atoms) < modulus:
        return _inside(offset, atoms, whole)
    # Steps that go round and do not close: each place of the one with the fewest is looked at.
    (size, stride), *others = sorted(atoms)
    return all(_residues_inside(offset + digit * stride, others, modulus, whole) for digit in range(size))


def _residues(offset: int, atoms: Sequence[Atom], modulus: int) -> tuple[int, Sequence[Atom]]:
    """An offset and atoms with the same sums modulo ``modulus``; none is as large, if those that go round close.

    4:2 modulo 4 closes: it goes through 0, 2, 0, 2, as 2:2 does.
    """
    offset, steps = offset % modulus, []
    for size, stride in atoms:
        if stride % modulus:
            steps.append((min(size, modulus // math.gcd(stride, modulus)), stride % modulus))
    if offset + span(steps) >= modulus:
        for at, (size, stride) in enumerate(steps):
            common = math.gcd(stride, modulus)
            if size * common == modulus:
                offset, others = _residues(offset, [*steps[:at], *steps[at + 1 :]], common)
                return offset, [(size, common), *others]
    return offset, steps


def _checked_atoms(sizes: object, strides: object) -> list[Atom]:
    flat_sizes, flat_strides = list(_flat(sizes)), list(_flat(strides))
    if len(flat_sizes) != len(flat_strides):
        raise SpmdValueError(
            f"a layout needs one stride per size, got sizes {_format(sizes)} and strides {_format(strides)}",
            code="SW903",
        )
    for size, stride in zip(flat_sizes, flat_strides, strict=True):
        if size < 1 or (stride < 1 and size > 1):
            raise SpmdValueError(
                f"sizes and strides of a layout must be positive, got size {size} with stride {stride}", code="SW903"
            )
    return list(zip(flat_sizes, flat_strides, strict=True))


def _flat(nested: Any) -> Iterator[int]:
    if isinstance(nested, (tuple, list)):
        for item in nested:
            yield from _flat(item)
    else:
        try:
            if isinstance(nested, bool):
                raise TypeError
            yield operator.index(nested)
        except TypeError:
            raise SpmdArgumentError(
                f"sizes and strides of a layout are ints, got {shown(nested)} of type {type(nested).__name__}",
                code="SW903",
            ) from None


def _format(numbers: object) -> str:
    if isinstance(numbers, (tuple, list)):
        return str(numbers[0]) if len(numbers) == 1 else "(" + ", ".join(map(_format, numbers)) + ")"
    return str(numbers)
