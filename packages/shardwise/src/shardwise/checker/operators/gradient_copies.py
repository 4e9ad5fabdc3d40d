"""Copies of gradients: which elements of a gradient stand where in them?

A copy of a gradient in a row, transposed, or taken apart and put together again, has its elements in an order of its
own. Summed and put back, they must stand where they stood. An order is known of what only moves elements; of what is
computed of a gradient otherwise, nobody says anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.interop.autograd.gradient_content import contents_of
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.element_orders import UNORDERED
from shardwise.interop.tensors.memory_pieces import Piece, joined_type, laid_into
from shardwise.interop.tensors.tagging import ATTRIBUTE, Tag, is_pieced, local_type, set_pieces, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import is_fake, is_transformed, no_torch_function, same_memory

from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call

COPYING = frozenset(
    {"clone", "contiguous", "reshape", "flatten", "ravel", "reshape_as"}
    | {"to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda"}
)
"""Operators whose result has the elements of their operand in its order, in another dtype too."""
MOVING = frozenset(
    {"flip", "flipud", "fliplr", "rot90", "roll", "index_select", "gather", "take", "take_along_dim", "getitem"}
    | {"stack", "vstack", "hstack", "dstack", "column_stack", "row_stack", "repeat", "tile", "masked_select", "pad"}
)
"""Operators whose result has elements of their operands in another order."""
_MOST_LISTED = 1 << 18
"""Of so many elements at most it is looked where each has gone."""
_MOST_STRETCHES = 1 << 8


def following(usual: Callable[..., object], moves: bool) -> Callable[..., object]:
    """The handler of an operator that copies elements, or ``moves`` them: by ``usual``, and of gradients it is known
    which ones they are.
    """

    def handle(
        session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords, *key: object, **options: object
    ) -> object:
        result = usual(session, func, args, kwargs, *key, **options)
        follow(result, func, args, kwargs, moves)
        return result

    return handle


def following_sum(usual: Callable[..., object]) -> Callable[..., object]:
    """The same for a typed collective that leaves every element at its place."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        result: Any = usual(session, func, args, kwargs)
        x: Any = args[0] if args else None
        if is_pieced(x) and isinstance(result, torch.Tensor) and not same_memory(result, x):
            tag, type = tag_of(result), type_of(result)
            pieces = [replace(piece, type=local_type(type)) for piece in contents_of(x)]
            if any(piece.content is not None for piece in pieces):
                set_pieces(result, laid_into(result, pieces), None if tag is None else tag.origin, type.spec)
        return result

    return handle


def follow(result: object, func: TorchFunction, args: Arguments, kwargs: Keywords, moves: bool) -> None:
    """``result`` was made by moving elements: if they are those of gradients, it is known from here on of which."""
    tag = getattr(result, ATTRIBUTE, None)
    if isinstance(result, torch.Tensor) and isinstance(tag, Tag) and _is_of_gradient(tag):
        _follow(result, func, args, kwargs, moves)


def _is_of_gradient(tag: Tag) -> bool:
    """True if the history of a tensor with this tag goes back to a gradient."""
    origin = tag.origin
    if isinstance(origin, tuple):
        return any(one is not None and one.gradient is not None for one in origin)
    return origin is not None and origin.gradient is not None


def _follow(result: torch.Tensor, func: TorchFunction, args: Arguments, kwargs: Keywords, moves: bool) -> None:
    sources = tensors_in((args[:1], kwargs.get("input"), kwargs.get("tensors")))
    if not sources or not result.numel() or is_dtensor_call(args, kwargs):
        return
    if any(map(is_transformed, (result, *sources))) or any(same_memory(result, source) for source in sources):
        return
    if is_pieced(result) and not moves:
        return  # what was copied in pieces has been told
    pieces = [piece for source in sources for piece in contents_of(source)]
    if all(piece.content is None for piece in pieces):
        return
    if moves:
        pieces = _moved(result, func, args, kwargs, sources, pieces)
    elif result.numel() != sources[0].numel():
        return
    tag, type = tag_of(result), type_of(result)
    set_pieces(result, laid_into(result, pieces), None if tag is None else tag.origin, type.spec)


def _moved(
    result: torch.Tensor,
    func: TorchFunction,
    args: Arguments,
    kwargs: Keywords,
    sources: Sequence[torch.Tensor],
    pieces: Sequence[Piece],
) -> list[Piece]:
    """What ``result`` consists of, in the order of its elements."""
    with no_torch_function():
        count, item = result.numel(), result.element_size()
        positions = _positions(func, args, kwargs, sources)
        if positions is not None and len(positions) == count:
            if torch.equal(positions, torch.arange(len(positions), device="cpu")):
                return list(pieces)  # all of them side by side
            found = _taken(positions, pieces, item)
            if found is not None:
                return found
    known = next(piece.content for piece in pieces if piece.content is not None)
    type = joined_type(piece.type for piece in pieces)
    return [Piece(0, count * item, type, pieces[0].origin, replace(known, order=UNORDERED), item)]


def _taken(positions: torch.Tensor, pieces: Sequence[Piece], item: int) -> list[Piece] | None:
    """The elements at these places of pieces that lie side by side; None if they are taken from too many in turn."""
    lengths = torch.tensor([(piece.stop - piece.start) // piece.itemsize for piece in pieces])
    starts = lengths.cumsum(0) - lengths
    chosen = torch.searchsorted(starts, positions, right=True) - 1
    changes = (torch.nonzero(chosen[1:] != chosen[:-1]).flatten() + 1).tolist()
    if len(changes) > _MOST_STRETCHES:
        return None
    found = []
    for first, last in itertools.pairwise([0, *changes, len(positions)]):
        if chosen[first] < 0:
            found.append(replace(pieces[0], start=first * item, stop=last * item, content=None, itemsize=item))
            continue
        piece = pieces[int(chosen[first])]
        places = positions[first:last] - starts[chosen[first]]
        content = piece.content and piece.content.at_places(places)
        found.append(replace(piece, start=first * item, stop=last * item, content=content, itemsize=item))
    return found


def _positions(
    func: TorchFunction, args: Arguments, kwargs: Keywords, sources: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """For each element of the result, in a row, which one of all elements of ``sources`` it is; None if unknown.

    Zeros that were put beside them are number -1.
    """
    if getattr(func, "__name__", "") == "pad" and (kwargs.get("value") or any(args[3:])):
        return None  # with anything but zeros
    if sum(source.numel() for source in sources) > _MOST_LISTED or any(is_fake(x) or x.is_meta for x in sources):
        return None
    stand_ins, at = {}, 1
    for source in sources:
        numbers = torch.arange(at, at + source.numel(), device="cpu").view(source.shape)
        stand_ins[id(source)], at = numbers, at + source.numel()

    def instead(value: object) -> object:
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return type(value)(map(instead, value))
        return stand_ins.get(id(value), value)

    try:
        made = func(*map(instead, args), **{name: instead(value) for name, value in kwargs.items()})
    except (RuntimeError, TypeError):  # as of indices on another device
        return None
    if not isinstance(made, torch.Tensor) or made.device.type != "cpu" or not made.numel():
        return None
    return made.reshape(-1) - 1 if int(made.min()) >= 0 and int(made.max()) < at else None
