"""Layouts that are true of values: every way in which the ranks' local tensors combine to the tensor of one rank.

Nobody has to say how a tensor lies on a mesh if a run on one rank shows the whole. Per axis the local tensors are
equal, or pieces along a dim, or addends, or the terms of a mean:

    ranks of tp=2 hold [[1, 2]] and [[3, 4]], one rank holds [[1, 2], [3, 4]]      shard of dim 0 over tp
    ranks of dp=2 hold 3.0 and 5.0, one rank holds 4.0                              mean over dp

Shapes decide first (a dim that is k times as long is cut over axes of k ranks together), values then.
Source: docs/semantics.md section 2; merged and interleaved weights as in Megatron and in torch's samplers, folded
sequences as in context parallelism that balances its load.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import UNTYPED, TensorType

from .reassemble import Unreadable, collapse, is_within

MERGED = (2, 3, 4)
"""Into how many equal parts a merged weight may be divided: gate and up, query key and value, an LSTM's gates."""

REORDERED = 4
"""How many ranks an axis may have whose pieces are tried in every order."""


class Way(enum.Enum):
    """How the tensors along one axis combine."""

    EQUAL = "equal"
    SHARD = "shard"
    """Pieces along a dim, in the order of the ranks."""
    STRIDED = "strided"
    """Every n-th element along a dim, as samplers deal out a data set and vocabularies are interleaved."""
    MERGED = "merged"
    """A piece holds one piece of every part of the whole: of query, key and value, say."""
    EXCHANGED = "exchanged"
    """Pieces along a dim, in another order than that of the ranks."""
    FOLDED = "folded"
    """The n-th piece from the start beside the n-th from the end, which evens out the work of causal attention."""
    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True)
class Along:
    """How the local tensors combine along ``axis``.

    ``dim``    the tensor dim, where pieces lie along one.
    ``parts``  for MERGED, the sizes of the parts within one rank's piece; for EXCHANGED, which ranks have the pieces.
    """

    axis: MeshAxis
    way: Way
    dim: int = 0
    parts: tuple[int, ...] = ()

    def described(self, over: str) -> str:
        """In words, ``over`` the axis as it is called."""
        return f"{_WORDS[self.way].format(dim=self.dim, ranks=list(self.parts))} over {over}"


WHOLE = (Way.EQUAL, Way.SUM, Way.MEAN)
"""Along an axis of these every rank's tensor is as large as the result."""
_WORDS = {
    Way.EQUAL: "equal",
    Way.SHARD: "pieces along dim {dim}",
    Way.STRIDED: "every n-th of dim {dim}",
    Way.MERGED: "a piece of every part along dim {dim}",
    Way.EXCHANGED: "pieces along dim {dim} in the order of the ranks {ranks}",
    Way.FOLDED: "the n-th piece from the start and from the end of dim {dim}",
    Way.SUM: "addends",
    Way.MEAN: "terms of a mean",
}


@dataclass(frozen=True)
class ObservedLayout:
    """How the local tensors of all ranks combine to one tensor.

    ``steps``   one per axis, in the order in which they are combined: innermost axis of a dim first.
    ``padding`` elements at the end of a dim that only the mesh has, by dim.
    ``shape``   of the result where the ranks hold parts of it flattened, as FSDP's flat parameters do; else empty.
    """

    steps: tuple[Along, ...]
    padding: Mapping[int, int] = field(default_factory=dict)
    shape: tuple[int, ...] = ()

    def described(self, names: Mapping[MeshAxis, str]) -> str:
        """In words: ``equal over dp, pieces along dim 0 over tp``."""
        return ("flattened, " if self.shape else "") + ", ".join(
            step.described(names.get(step.axis, repr(step.axis))) for step in self.steps
        )

    @property
    def cut_dims(self) -> set[int]:
        """The dims along which pieces lie."""
        return {step.dim for step in self.steps if step.way not in WHOLE}

    def placed(self, marks: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """Where the elements come from: marks of every rank's elements as they lie in the one tensor, the marks of the
        first rank where several hold one element or its addends."""
        values = self._collapsed(marks, first=WHOLE)
        return self._without_padding(values[min(values)])

    def combined(self, pieces: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The one tensor, without padding. Errors: Unreadable if the tensors do not fit together."""
        values = self._collapsed(pieces)
        if len(values) != 1:
            raise Unreadable(f"{len(values)} tensors are left: an axis of the mesh has no step")
        return self._without_padding(*values.values())

    def summed_with(self, rank: int) -> tuple[int, ...]:
        """The ranks whose addends make the element that ``rank`` holds one of; that rank alone if none are added."""
        ranks = [rank]
        for step in self.steps:
            if step.way in (Way.SUM, Way.MEAN):
                ranks = [base + moved for base in ranks for moved in step.axis.layout.ranks()]
        return tuple(sorted(ranks))

    def says(self, known: Collection[Along]) -> bool:
        """True if every step of ``known`` is one of this layout's, those along one dim in the same order."""
        return set(known) <= set(self.steps) and _along_dims(known) == _along_dims(
            [step for step in self.steps if step in known]
        )

    def _collapsed(self, pieces: Mapping[int, torch.Tensor], first: Collection[Way] = ()) -> dict[int, torch.Tensor]:
        values = dict(pieces)
        for step in self.steps:
            combine = _first if step.way in first else functools.partial(_combine, step)
            values = collapse(values, step.axis, combine)
        return values

    def _without_padding(self, whole: torch.Tensor) -> torch.Tensor:
        for dim, length in self.padding.items():
            whole = whole.narrow(dim, 0, whole.shape[dim] - length)
        return whole.view(self.shape) if self.shape and whole.numel() == math.prod(self.shape) else whole


def observed_layouts(
    pieces: Mapping[int, torch.Tensor],
    axes: Sequence[MeshAxis],
    whole: torch.Tensor,
    apart: float,
    said: TensorType = UNTYPED,
) -> Iterator[ObservedLayout]:
    """The layouts under which ``pieces``, by rank, are ``whole``, the plainest first.

    ``axes``   all axes of the mesh with more than one rank, outermost first.
    ``apart``  how far two elements may be apart; what is claimed equal is compared bit by bit all the same.
    ``said``   what is known of the tensor: layouts that contradict it are left out.
    """
    known = layout_said(said).steps
    for layout in _of_fitting_shape(pieces, axes, whole):
        if not layout.says(known):
            continue
        try:
            value = layout.combined(pieces)
        except Unreadable:
            continue
        if value.shape == whole.shape and is_within(value, whole, apart):
            yield layout


def flattened_layouts(
    pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], whole: torch.Tensor
) -> Iterator[ObservedLayout]:
    """The layouts under which ``pieces``, by rank, are parts of ``whole`` flattened, of any lengths."""
    if whole.ndim < 2 or any(piece.ndim != 1 for piece in pieces.values()):
        return
    for layout in observed_layouts(pieces, axes, whole.flatten(), 0.0):
        if layout.cut_dims and all(step.way in (Way.EQUAL, Way.SHARD) for step in layout.steps):
            yield replace(layout, shape=tuple(whole.shape))


def exchanged_layouts(
    pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], whole: torch.Tensor
) -> Iterator[ObservedLayout]:
    """The layouts under which ``pieces``, by rank, are ``whole`` once those along one axis are reordered."""
    for layout in _of_fitting_shape(pieces, axes, whole):
        if any(step.way not in (Way.EQUAL, Way.SHARD) for step in layout.steps):
            continue
        for at, step in enumerate(layout.steps):
            size = step.axis.size()
            orders = itertools.permutations(range(size)) if step.way is Way.SHARD and size <= REORDERED else ()
            for order in itertools.islice(orders, 1, None):
                other = replace(step, way=Way.EXCHANGED, parts=order)
                candidate = replace(layout, steps=(*layout.steps[:at], other, *layout.steps[at + 1 :]))
                with contextlib.suppress(Unreadable):
                    value = candidate.combined(pieces)
                    if value.shape == whole.shape and is_within(value, whole, 0.0):
                        yield candidate


def _along_dims(steps: Iterable[Along]) -> list[Along]:
    return sorted((step for step in steps if step.way not in WHOLE), key=lambda step: step.dim)


def layout_said(type: TensorType) -> ObservedLayout:
    """The layout that ``type`` says, without the axes along which it says no more than that the tensor varies."""
    equal = [Along(axis, Way.EQUAL) for axis in type.equal_axes]
    sums = [Along(axis, Way.SUM) for axis in type.axes if type.is_pending_sum(axis, "the oracle")]
    cut = [
        Along(axis, Way.SHARD, dim) for dim, entry in enumerate(type.spec or ()) for axis in reversed(entry_axes(entry))
    ]
    return ObservedLayout((*equal, *sums, *cut))


def fits(pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], whole: torch.Tensor) -> bool:
    """Is there a layout under which the pieces, by rank, have the shape of ``whole``, whatever their values?"""
    return next(_of_fitting_shape(pieces, axes, whole), None) is not None


def _of_fitting_shape(
    pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], whole: torch.Tensor
) -> Iterator[ObservedLayout]:
    """Layouts whose result has the shape of ``whole``, padding aside."""
    piece = pieces[min(pieces)]
    if piece.ndim != whole.ndim:
        return
    uneven = len({one.shape for one in pieces.values()}) > 1
    for dims in itertools.product((None, *range(whole.ndim)), repeat=len(axes)):
        cut = {axis: dim for axis, dim in zip(axes, dims, strict=True) if dim is not None}
        padding = {} if uneven else _padding(piece, cut, whole)
        if padding is None:
            continue
        others = [axis for axis in axes if axis not in cut]
        for order in _orders(axes, cut):
            ways = [_ways(axis, cut, piece, whole, pieces) for axis in (*others, *order)]
            for steps in itertools.product(*ways):
                yield ObservedLayout(steps, padding)


def _padding(piece: torch.Tensor, cut: Mapping[MeshAxis, int], whole: torch.Tensor) -> dict[int, int] | None:
    """How much longer each dim is than that of the whole; None if it is shorter, or longer by a rank's piece."""
    padding = {}
    for dim in range(whole.ndim):
        ranks = math.prod(axis.size() for axis, at in cut.items() if at == dim)
        extra = piece.shape[dim] * ranks - whole.shape[dim]
        if extra < 0 or (extra and (ranks == 1 or extra >= piece.shape[dim])):
            return None
        if extra:
            padding[dim] = extra
    return padding


def _orders(axes: Sequence[MeshAxis], cut: Mapping[MeshAxis, int]) -> Iterator[tuple[MeshAxis, ...]]:
    """Orders of combining the axes that cut: any two that share a dim in either order, innermost axis first."""
    cutting = [axis for axis in reversed(axes) if axis in cut]
    seen = set()
    for order in itertools.permutations(cutting):
        key = tuple(tuple(axis for axis in order if cut[axis] == dim) for dim in sorted(set(cut.values())))
        if key not in seen:
            seen.add(key)
            yield order


def _ways(
    axis: MeshAxis,
    cut: Mapping[MeshAxis, int],
    piece: torch.Tensor,
    whole: torch.Tensor,
    pieces: Mapping[int, torch.Tensor],
) -> list[Along]:
    dim = cut.get(axis)
    if dim is None:
        adds = whole.is_floating_point() or whole.is_complex()
        return [Along(axis, Way.EQUAL), *([Along(axis, Way.SUM), Along(axis, Way.MEAN)] if adds else [])]
    ways = [Along(axis, Way.SHARD, dim), Along(axis, Way.STRIDED, dim)]
    if list(cut.values()).count(dim) == 1:
        ways += [Along(axis, Way.MERGED, dim, parts) for parts in merged_parts(piece.shape[dim])]
        ways += [Along(axis, Way.FOLDED, dim)] if piece.shape[dim] % 2 == 0 else []
    return ways


def merged_parts(length: int) -> Iterator[tuple[int, ...]]:
    """The parts that a piece of ``length`` may have: equal ones, and a query that is a multiple of key and value."""
    for count in MERGED:
        if length and length % count == 0:
            yield (length // count,) * count
    for groups in (2, 4, 8):
        if length and length % (groups + 2) == 0:
            share = length // (groups + 2)
            yield (groups * share, share, share)


def _first(along: Mapping[int, torch.Tensor]) -> torch.Tensor:
    return next(iter(along.values()))


def _combine(step: Along, along: Mapping[int, torch.Tensor]) -> torch.Tensor:
    parts = list(along.values())
    first = parts[0]
    match step.way:
        case Way.EQUAL:
            for other in parts[1:]:
                if other.shape != first.shape or not is_within(first, other, 0.0):
                    raise Unreadable(f"the ranks' tensors differ over {step.axis!r}")
            return first
        case Way.SUM:
            return torch.stack(parts).sum(0)
        case Way.MEAN:
            if all(torch.equal(first, other) for other in parts[1:]):
                raise Unreadable(f"the ranks' tensors are equal over {step.axis!r}, which says more than their mean")
            return torch.stack(parts).mean(0)
        case Way.SHARD:
            return torch.cat(parts, step.dim)
        case Way.EXCHANGED:
            return torch.cat([parts[index] for index in step.parts], step.dim)
        case Way.STRIDED:
            return torch.stack(parts, step.dim + 1).flatten(step.dim, step.dim + 1)
        case Way.MERGED:
            split = [torch.split(part, list(step.parts), step.dim) for part in parts]
            return torch.cat([piece for pieces in zip(*split, strict=True) for piece in pieces], step.dim)
        case Way.FOLDED:
            if any(part.shape[step.dim] % 2 for part in parts):
                raise Unreadable(f"dim {step.dim} of a rank's tensor has no two halves over {step.axis!r}")
            halves = [part.chunk(2, step.dim) for part in parts]
            return torch.cat([*(half[0] for half in halves), *(half[1] for half in reversed(halves))], step.dim)
