"""Parameters of a mesh run aligned with those of the one-rank run: by name, else by value, on all ranks or on some.

A stage of a pipeline numbers its layers from 0, and a rank its experts, so one name may stand for different parameters:

    ranks 0 and 1: layers.0.weight is layers.0.weight of the one-rank run
    ranks 2 and 3: layers.0.weight is layers.2.weight of the one-rank run

What tells is the initial value. One that is constant (a bias of zeros) tells nothing and goes where its neighbours go.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import ObservedLayout, Way, exchanged_layouts, flattened_layouts, observed_layouts
from shardwise.oracle.reassemble import Grid
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..distance.difference import left_over, scale_of, tolerance_of
from ..records.naming import NAMELESS

PARAMETER_WAYS = (Way.EQUAL, Way.SHARD, Way.STRIDED, Way.MERGED)
"""No parameter is the sum of what the ranks hold."""
RESUMED = 10.0
"""How far parameters that have been trained before may be apart, relative to the tolerance of their dtype."""


@dataclass(frozen=True)
class AlignedParameter:
    """What some ranks of the mesh hold under one name.

    ``name``     of the parameter of the one-rank run that it is.
    ``layouts``  under which the ranks' tensors are that parameter, the plainest first.
    """

    ranks: tuple[int, ...]
    name: str
    layouts: tuple[ObservedLayout, ...]

    def equal_axes(self, said: TensorType = UNTYPED) -> tuple[MeshAxis, ...]:
        """The axes along which the ranks hold the same, whichever of the layouts it is of those that ``said`` allows.

        Halves of a weight of ones are the same on all ranks, and it may be cut along either of two axes.
        """
        equal = [[step.axis for step in layout.steps if step.way is Way.EQUAL] for layout in self.layouts]
        allowed = [axes for axes in equal if not any(map(said.is_varying, axes))] or equal
        return tuple(axis for axis in allowed[0] if all(axis in axes for axes in allowed))

    def one_by_one(self) -> Iterator[AlignedParameter]:
        """The same with a single layout each, where there are several."""
        for layout in self.layouts if len(self.layouts) > 1 else ():
            yield replace(self, layouts=(layout,))


class Alignment:
    """Where every parameter of a mesh run is found in the one-rank run.

    ``ranks``  initial values by name, of every rank of ``grid`` in rank order.
    ``alone``  those of the one-rank run.
    """

    def __init__(
        self, grid: Grid, ranks: Sequence[Mapping[str, torch.Tensor]], alone: Mapping[str, torch.Tensor]
    ) -> None:
        self._grid, self._ranks, self._alone = grid, ranks, alone
        self._largest = scale_of(*alone.values())
        self._found: dict[str, tuple[AlignedParameter, ...]] = {}
        self.multiples: dict[str, float] = {}
        """Of parameters that nothing explains, by name: how many times what one rank has they are."""
        names = list(dict.fromkeys(name for held in ranks for name in held))
        for name in sorted(names, key=self._is_constant):
            having = tuple(rank for rank, held in enumerate(ranks) if name in held)
            parts = tuple(self._like_neighbours(name, having) or self._explained(name, having))
            # Experts that were dealt out and start from one seed are no replicas of each other. A last stage may have
            # a layer more than those before it, whose number no other rank has.
            owed = self._dealt_out(name) * len(having) / len(ranks)
            self._found[name] = parts if owed <= len({part.name for part in parts}) else ()

    def of(self, name: str) -> tuple[AlignedParameter, ...]:
        """The groups of ranks that hold ``name``, each with what it is; none where no layout explains the values."""
        return self._found.get(name, ())

    @property
    def targets(self) -> frozenset[str]:
        """The parameters of the one-rank run that some rank of the mesh holds."""
        return frozenset(part.name for parts in self._found.values() for part in parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of the ranks that are explained."""
        return tuple(name for name, parts in self._found.items() if parts)

    def equal_axes(self, name: str) -> tuple[MeshAxis, ...]:
        """The axes along which the initial values are equal and tell; for parameters that nothing explains."""
        held = {rank: values[name] for rank, values in enumerate(self._ranks) if name in values}
        if len(held) < len(self._ranks) or self._is_constant(name):
            return ()
        axes = varying(self._grid, tuple(held))
        equal = tuple(axis for axis in axes if is_equal_along(held, axis))
        apart = math.prod(axis.size() for axis in axes if axis not in equal)
        return equal if self._dealt_out(name) * self._cut(name) <= apart else ()

    def _cut(self, name: str) -> float:
        """Into how many pieces the parameter of this name is cut."""
        whole = self._alone.get(name)
        piece = next((values[name] for values in self._ranks if name in values), None)
        return 1.0 if whole is None or piece is None or not piece.numel() else whole.numel() / piece.numel()

    def _dealt_out(self, name: str) -> float:
        """Over how many ranks the items of a container towards ``name`` are shared out and numbered anew; 1 if not."""
        parts = name.split(".")
        shares = [1.0]
        for at, part in enumerate(parts):
            if part.isdigit():
                held: set[str] = set().union(*(items_of(values, parts[:at]) for values in self._ranks))
                shares.append(len(items_of(self._alone, parts[:at])) / max(len(held), 1))
        return max(shares)

    def _is_constant(self, name: str) -> bool:
        return all(is_constant(held[name]) for held in self._ranks if name in held)

    def _explained(self, name: str, ranks: tuple[int, ...]) -> list[AlignedParameter]:
        if name.startswith(NAMELESS) and self._is_constant(name) and not self._numbered_alike(name):
            return []  # neither its place in an optimizer nor its value says what it is
        pieces = {rank: self._ranks[rank][name] for rank in ranks}
        axes = varying(self._grid, ranks)
        for other in self._candidates(name):
            layouts = self._layouts(pieces, axes, other)
            if not layouts and other == name:
                layouts = tuple(exchanged_layouts(pieces, axes, self._alone[name]))
            if layouts:
                return [AlignedParameter(ranks, other, layouts)]
        for other in self._candidates(name):
            for finer in _with_one_parted(axes):
                layouts = tuple(self._near(pieces, finer, self._alone[other], 0.0))
                if layouts:
                    return [AlignedParameter(ranks, other, layouts)]
        for axis in axes:
            groups = _slices(ranks, axis)
            parts = [self._explained(name, group) for group in groups]
            if len(groups) > 1 and all(parts):
                return [part for group in parts for part in group]
        resumed = self._resumed(name, pieces, axes)
        factor = None if resumed else self._multiple(name, pieces, axes)
        if factor is not None:
            self.multiples[name] = factor
        return resumed

    def _numbered_alike(self, name: str) -> bool:
        """Has every rank the parameters without a name that one rank has, this one as large? Then its number tells.

        That of a part of one tells where all parameters whose values tell are what their numbers say.
        """
        runs = (*self._ranks, self._alone)
        nameless = [{other for other in run if other.startswith(NAMELESS)} for run in runs]
        if any(names != nameless[-1] for names in nameless):
            return False
        telling = [other for other in nameless[-1] if not self._is_constant(other)]
        alike = bool(telling) and all({part.name for part in self._found[other]} == {other} for other in telling)
        return alike or len({run[name].shape for run in runs}) == 1

    def _multiple(self, name: str, pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis]) -> float | None:
        """How many times the values of the one-rank run they are: weights scaled by a size that is one rank's."""
        whole = self._alone.get(name)
        if whole is None or not whole.is_floating_point() or is_constant(whole) or len(pieces) < len(self._ranks):
            return None
        largest = max((float(piece.abs().max()) for piece in pieces.values() if piece.numel()), default=0.0)
        factor = largest / float(whole.abs().max())
        if not 0.0 < factor < math.inf:
            return None
        alike = {rank: piece / factor for rank, piece in pieces.items()}
        apart = RESUMED * tolerance_of([whole.dtype]) * scale_of(whole)
        return factor if next(self._near(alike, axes, whole, apart), None) is not None else None

    def _resumed(
        self, name: str, pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis]
    ) -> list[AlignedParameter]:
        """Values that were computed before they came into this model agree but for rounding: trained, in a checkpoint,
        or set by the first batch. Where they are zero in theory, rounding is that of the numbers they are made of.
        """
        if name not in self._alone or len(pieces) < len(self._ranks):
            return []
        whole = self._alone[name]
        apart = max(RESUMED * tolerance_of([whole.dtype]) * scale_of(whole), left_over(whole.dtype, self._largest))
        layouts = tuple(self._near(pieces, axes, whole, apart))
        return [AlignedParameter(tuple(pieces), name, layouts)] if layouts else []

    def _near(
        self, pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], whole: torch.Tensor, apart: float
    ) -> Iterator[ObservedLayout]:
        for layout in observed_layouts(pieces, axes, whole, apart):
            if all(step.way in PARAMETER_WAYS for step in layout.steps):
                yield layout

    def _candidates(self, name: str) -> Iterator[str]:
        """The parameters of the one-rank run, the one of this name first."""
        if name in self._alone:
            yield name
        if not self._is_constant(name):
            yield from (other for other in self._alone if other != name and not is_constant(self._alone[other]))

    def _layouts(
        self, pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], other: str
    ) -> tuple[ObservedLayout, ...]:
        whole = self._alone[other]
        found = tuple(self._near(pieces, axes, whole, 0.0))
        return found or tuple(flattened_layouts(pieces, axes, whole))

    def _like_neighbours(self, name: str, ranks: tuple[int, ...]) -> list[AlignedParameter]:
        """For a constant: the groups of the nearest parameter that tells, under the name that corresponds."""
        if not self._is_constant(name):
            return []
        neighbour = max(self._found, key=lambda other: _shared(name, other), default=None)
        if neighbour is None or not _shared(name, neighbour):
            return []
        found = []
        for group in self._found[neighbour]:
            other = _renamed(name, neighbour, group.name)
            held = tuple(rank for rank in group.ranks if rank in ranks)
            if held != group.ranks or other not in self._alone:
                return []
            pieces = {rank: self._ranks[rank][name] for rank in held}
            layouts = self._layouts(pieces, varying(self._grid, held), other)
            if not layouts:
                return []
            found.append(AlignedParameter(held, other, layouts))
        return found


def _with_one_parted(axes: Sequence[MeshAxis]) -> Iterator[list[MeshAxis]]:
    """``axes`` with one of them as two: fewer key and value heads than ranks lie once on every group of ranks."""
    for at, axis in enumerate(axes):
        yield from ([*axes[:at], *parts, *axes[at + 1 :]] for parts in axis_parts(axis))


def axis_parts(axis: MeshAxis) -> list[tuple[MeshAxis, MeshAxis]]:
    """``axis`` as an outer and an inner one, in every way; none of an axis of prime size."""
    size, ranks = axis.size(), list(axis.layout.ranks())
    if len(axis.layout.atoms) != 1:
        return []
    divisors = [inner for inner in range(2, size) if size % inner == 0]
    return [(MeshAxis.of(size // inner, ranks[inner]), MeshAxis.of(inner, ranks[1])) for inner in divisors]


def is_constant(value: torch.Tensor) -> bool:
    """Are all elements the same? Such a value does not tell one parameter from another."""
    return not value.numel() or bool((value == value.flatten()[0]).all())


def items_of(names: Iterable[str], path: Sequence[str]) -> set[str]:
    """The items of the container at ``path`` that there are parameters of."""
    at = len(path)
    split = (name.split(".") for name in names)
    return {parts[at] for parts in split if parts[:at] == list(path) and len(parts) > at and parts[at].isdigit()}


def _shared(one: str, other: str) -> int:
    """How many leading components two dotted names share."""
    count = 0
    for a, b in zip(one.split("."), other.split("."), strict=False):
        if a != b:
            break
        count += 1
    return count


def _renamed(name: str, neighbour: str, alias: str) -> str:
    """``name`` as ``neighbour`` is renamed to ``alias``: layers.0.b for layers.0.w and layers.2.w is layers.2.b."""
    old, new = neighbour.split("."), alias.split(".")
    while old and new and old[-1] == new[-1]:
        old.pop(), new.pop()
    parts = name.split(".")
    return ".".join([*new, *parts[len(old) :]]) if parts[: len(old)] == old else name


def varying(grid: Grid, ranks: tuple[int, ...]) -> list[MeshAxis]:
    """The axes along which these ranks are a grid of their own, outermost first; none if they are no grid.

    They may be a part of an axis at even distances, as the first and the last stage that share one embedding.
    """
    having = set(ranks)
    coordinates = [at for rank, at in enumerate(grid.coordinates) if rank in having]
    found: list[MeshAxis] = []
    for at, axis in enumerate(grid.axes.values()):
        values = sorted({one[at] for one in coordinates})
        part = axis if len(values) == axis.size() else part_of(axis, values)
        if len(values) > 1 and part is None:
            return []
        if len(values) > 1 and part is not None:
            found.append(part)
    starts = {rank - sum(axis.layout.offset(rank) for axis in found) for rank in ranks}
    whole = math.prod(axis.size() for axis in found)
    return found if len(starts) == 1 and whole == len(ranks) else []


def part_of(axis: MeshAxis, values: Sequence[int]) -> MeshAxis | None:
    """The ranks of ``axis`` with these numbers as an axis of their own; None if they are not at even distances."""
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(steps) != 1 or len(axis.layout.atoms) != 1:
        return None
    return MeshAxis.of(len(values), steps.pop() * list(axis.layout.ranks())[1])


def _slices(ranks: tuple[int, ...], axis: MeshAxis) -> list[tuple[int, ...]]:
    """``ranks`` by their place along ``axis``."""
    groups: dict[int, list[int]] = {}
    for rank in ranks:
        groups.setdefault(axis.layout.offset(rank), []).append(rank)
    return [tuple(group) for group in groups.values()]


def is_equal_along(held: Mapping[int, torch.Tensor], axis: MeshAxis) -> bool:
    """Do ranks that are apart along ``axis`` alone hold equal tensors?"""
    fibers: dict[int, int] = {}
    for rank in sorted(held):
        first = fibers.setdefault(rank - axis.layout.offset(rank), rank)
        if not torch.equal(held[rank], held[first]):
            return False
    return True
