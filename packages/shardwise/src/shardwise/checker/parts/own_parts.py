"""Slices by the number of a rank: which of them are exactly the part that a rank has of the whole.

``x[rank * n : (rank + 1) * n]`` of a value that every rank has is S(0) if ``n`` times the number of ranks is the size
of the dim; so is ``x.chunk(world)[rank]``, and ``arange(n) + rank * n`` of all positions. Any other cut by such a
number varies, and nobody can say how.
Source: docs/semantics.md section 10.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import UNTYPED, Ground

from ..call.arguments import Op
from ..state.numbers import TYPED_NUMBERS, ByRank, plain, type_here, typed
from ..state.session import CheckSession

Handler = Callable[[CheckSession, Any, Arguments, Keywords], object]
PARTING = frozenset(
    {"chunk", "unsafe_chunk", "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"}
    | {"tensor_split", "hsplit", "vsplit", "dsplit", "unbind"}
)
_DIMS = {"hsplit": 1, "vsplit": 0, "dsplit": 2}


def own_parts(op: Op, args: Arguments, kwargs: Keywords, *, of_data: bool = False) -> dict[MeshAxis, int | None]:
    """By axis along which a slice by a rank's number varies: the dim of the result whose part it is, or None.

    ``of_data``  samples have no order: ``x[rank::world]`` is this rank's part of them as well.
    """
    given = dict(op.arguments(args, kwargs))
    x = given.get("input")
    if not isinstance(x, torch.Tensor):
        return {}
    with no_torch_function():
        shape = tuple(x.shape)
    if op.rule.op == "getitem":
        cuts = _sliced(given.get("index"), shape)
    elif op.rule.op in ("narrow", "narrow_copy"):
        dim, start, length = plain(given.get("dim", 0)), given.get("start", 0), given.get("length", 0)
        known = isinstance(dim, int) and isinstance(start, int) and isinstance(length, int) and -len(shape) <= dim
        cuts = [(dim % len(shape), (start, start + length, 1), shape[dim])] if known and dim < len(shape) else []
    else:
        cuts = []
    found: dict[MeshAxis, int | None] = dict.fromkeys(_varying(given.values()))
    for dim, bounds, size in cuts:
        axes = part_axes(*bounds, size=size) or (of_data and _dealt_axes(*bounds, size=size)) or ()
        found |= dict.fromkeys(axes, dim if all(found.get(axis, dim) is None for axis in axes) else None)
    return found


def part_axes(start: object, stop: object, step: Any = 1, *, size: int | None = None) -> tuple[MeshAxis, ...]:
    """The axes of which ``range(start, stop, step)`` is this rank's part: of all ``size`` positions, if that is given.

    Where there are several, the outermost is the major one. Empty: it is no part.
    """
    firsts, lasts = _by_rank(start), _by_rank(stop)
    if firsts is None or lasts is None or step.__class__ is not int or step in (None, 0):
        return ()
    axes = tuple(_varying([start]))
    length = lasts[0] - firsts[0]
    if not axes or _varying([stop]) != dict.fromkeys(axes) or length <= 0:
        return ()
    parts = 1
    for axis in axes:
        parts *= axis.size()
    if size is not None and (length * parts != size or step != 1):
        return ()
    for rank, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        place = _place(rank, axes)
        if first != place * length or last != first + length or length % step:
            return ()
    return axes


def _dealt_axes(start: object, stop: object, step: object, *, size: int) -> tuple[MeshAxis, ...]:
    """The axes of whose ranks each has every n-th of ``size`` positions, as cards are dealt; empty if none are so."""
    firsts, axes = _by_rank(start), tuple(_varying([start]))
    parts = math.prod(axis.size() for axis in axes)
    if firsts is None or not axes or plain(step) != parts or plain(stop) != size or size % parts:
        return ()
    dealt = all(first == _place(rank, axes) for rank, first in enumerate(firsts))
    return axes if dealt else ()


def _place(rank: int, axes: Sequence[MeshAxis]) -> int:
    """The number of ``rank`` among those along ``axes``, the first of them the major one."""
    return functools.reduce(lambda place, axis: place * axis.size() + axis.layout.place(rank), axes, 0)


def shifted_positions(values: Sequence[object]) -> dict[MeshAxis, int | None] | None:
    """By axis, the dim along which ``arange(n) + rank * n`` is this rank's part of all positions; None for what is no
    sum of a constant and a number of the rank. Positions may count from anywhere (``arange(1, n + 1)``).

    ``values``  the operands of a sum. A constant is the same on every rank, so its numbers here are known there.
    """
    constants = [x for x in values if isinstance(x, torch.Tensor) and type_of(x).ground is Ground.CONSTANT]
    numbers = [x for x in values if _by_rank(x) is not None]
    if len(values) != 2 or len(constants) != 1 or len(numbers) != 1:
        return None
    (x,), number = constants, numbers[0]
    with no_torch_function():
        length = x.numel()
        long = [dim for dim, size in enumerate(x.shape) if size == length]
        if not long or length < 2 or x.is_complex() or x.dtype is torch.bool or x.device.type == "meta":
            return {}
        flat = x.detach().flatten()
        first = int(flat[0])
        if not torch.equal(flat, torch.arange(first, first + length, dtype=x.dtype, device=x.device)):
            return {}
    own: Any = number - _by_rank(number)[0]  # whatever all ranks count from
    axes: Any = part_axes(own, length + own)
    return dict.fromkeys(axes, long[0])


def _sliced(index: object, shape: Sequence[int]) -> list[tuple[int, tuple[object, object, object], int]]:
    """The slices by typed numbers in an index: the dim of the result, the bounds, and the size of what is cut."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not all(item is None or item is Ellipsis or isinstance(item, (int, slice)) for item in items):
        return []
    if Ellipsis in items:
        at, taken = items.index(Ellipsis), sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * (len(shape) - taken)
    found, dim, sizes = [], 0, iter(shape)
    for item in items:
        size = 1 if item is None else next(sizes, None)
        if size is None:
            return []
        if isinstance(item, slice):
            start, stop = 0 if item.start is None else item.start, size if item.stop is None else item.stop
            if start.__class__ in TYPED_NUMBERS or stop.__class__ in TYPED_NUMBERS:
                found.append((dim, (start, stop, 1 if item.step is None else item.step), size))
        dim += item is None or isinstance(item, slice)
    return found


def _varying(values: Iterable[Any]) -> dict[MeshAxis, None]:
    """The axes of the mesh along which some number in ``values`` differs from rank to rank as a rank's number does."""
    found: dict[MeshAxis, None] = {}
    for value in values:
        if isinstance(value, (tuple, list)):
            found |= _varying(value)
        elif isinstance(value, slice):
            found |= _varying((value.start, value.stop, value.step))
        elif _by_rank(value) is not None:
            found |= dict.fromkeys(type_here(value).varying_axes)
    return found


def _by_rank(number: Any) -> Any:
    """The number on every rank, if that is known."""
    return getattr(number, "by_rank", None) if number.__class__ in TYPED_NUMBERS else None


class RankPieces(tuple[torch.Tensor, ...]):
    """Pieces of a tensor, of which the one at a rank's number is that rank's part; a tuple to everyone else."""

    whole: tuple[torch.Tensor, int, bool]
    """What was cut, along which dim, and whether the dim is gone."""

    def __getitem__(self, at: Any) -> Any:
        number = _by_rank(at)
        if number is None:
            return super().__getitem__(at)
        x, dim, gone = self.whole
        if gone:
            return x.select(dim, at)
        with no_torch_function():
            sizes = [piece.shape[dim] for piece in self]
        starts = [0, *itertools.accumulate(sizes)]
        first: ByRank | None = None
        length: ByRank | None = None
        with contextlib.suppress(IndexError):  # on another rank
            first = tuple(starts[range(len(self))[one]] for one in number)
            length = tuple(sizes[one] for one in number)
        own = range(len(self))[at]
        type = type_of(at)
        start: Any = typed(starts[own], type, first)
        size: Any = typed(sizes[own], type, length)
        return x.narrow(dim, start, size)

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (list(self),)


def parting(op: str, handler: Handler) -> Handler:
    """The handler of an operator that cuts a tensor into pieces, of which the program may take its rank's."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        result: Any = handler(session, func, args, kwargs)
        if result.__class__ is not tuple:
            return result
        x: Any = args[0] if args else kwargs.get("input", kwargs.get("self", kwargs.get("tensor")))
        position = 1 if op == "unbind" else 2
        dim = _DIMS.get(op, kwargs.get("dim", args[position] if len(args) > position else 0))
        along = dim if dim.__class__ is int and isinstance(x, torch.Tensor) and x.ndim > 1 else 0
        if not session.local:
            _note_cut(result, None if op == "unbind" else along)
            if session.stacked is not None and op != "unbind" and _is_taken_apart(session, x, result, along):
                return result
        if (
            dim.__class__ is not int
            or not isinstance(x, torch.Tensor)
            or not _may_be_shared_out(session, x, len(result))
        ):
            return result
        made = RankPieces(result)
        made.whole = (x, along, op == "unbind")
        return made

    return handle


def _is_taken_apart(session: CheckSession, x: object, pieces: Sequence[torch.Tensor], dim: int) -> bool:
    """True of what was gathered along a dim that is not its own, if these are the pieces of the ranks."""
    with no_torch_function():
        stacked = session.stacked.get(x) if isinstance(x, torch.Tensor) else None
    return stacked is not None and stacked.take_apart(session, x, pieces, dim)


_cuts: Any = by_tensor()
"""For a piece of a cut: what all pieces of it have in common, and its number."""


@dataclass(frozen=True, slots=True, eq=False)
class WholeCut:
    """Into how many pieces a tensor was cut, all of them alike or not, and along which dim; None: that dim is gone."""

    count: int
    dim: int | None
    even: bool


def _note_cut(pieces: Sequence[torch.Tensor], dim: int | None) -> None:
    with no_torch_function():
        even = len({piece.shape for piece in pieces}) < 2
        cut = WholeCut(len(pieces), dim if dim is None or dim >= 0 or not pieces else dim + pieces[0].ndim, even)
        for number, piece in enumerate(pieces):
            _cuts[piece] = cut, number


def pieces_of_cut(tensors: Sequence[object]) -> tuple[WholeCut, list[int]] | None:
    """The numbers of these tensors, if they are all the pieces of one, in whatever order."""
    with no_torch_function():
        found = [_cuts.get(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if not found or len(found) < len(tensors) or None in found:
        return None
    cut, numbers = found[0][0], [number for _, number in found]
    return (cut, numbers) if all(one is cut for one, _ in found) and sorted(numbers) == list(range(cut.count)) else None


def copying(handler: Handler) -> Handler:
    """The handler of an operator that hands its operand or a copy of it back, which is the same piece."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        result: Any = handler(session, func, args, kwargs)
        if not session.local and args and isinstance(args[0], torch.Tensor):
            with no_torch_function():
                piece = _cuts.get(args[0])
                if piece is not None:
                    _cuts[result] = piece
        return result

    return handle


def _may_be_shared_out(session: CheckSession, x: torch.Tensor, count: int) -> bool:
    """True if ranks that have the same ``x``, or addends of it, can share ``count`` pieces out; so of untyped data."""
    type = type_of(x)
    axes = session.averaged if session.observe and type is UNTYPED else type.axes
    return any(not type.is_varying(axis) and count % axis.size() == 0 for axis in axes)
