"""Random numbers that the run on one rank draws as the ranks of the mesh drew theirs, one piece behind the other.

rank 0 drops elements of rows 0 to 3, rank 1 of rows 4 to 7     the one rank's mask of eight rows is made of the two
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from shardwise.interop.running.recording import Draw
from shardwise.interop.torch_compat import no_torch_function, tree_map

from ..records.draws import Draws, pieces_of

Shape = tuple[int, ...]


class GivenDraws:
    """Draws on one rank what all ``ranks`` drew. ``count``: how often that was put together of several pieces."""

    def __init__(self, ranks: Sequence[Draws]) -> None:
        self._ranks = ranks
        self.count = 0

    def draw(
        self,
        draw: Draw,
        func: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        result: object,
        generator: torch.Generator,
        *,
        again: bool = False,
    ) -> object | None:
        """What replaces ``result``, which the call has drawn; None if nothing does: then the runs part here.

        What writes in place writes once more. ``again``: it was drawn before, and is not counted.
        """
        known = [rank[draw.key] for rank in self._ranks if draw.key in rank]
        if not known or len(known) < len(self._ranks):
            return None
        of_values = result is not args[0] if args and isinstance(args[0], torch.Tensor) else False
        found = pieces_of(known, draw.shape, alike=of_values)
        if found is None:
            return None
        dim, pieces = found
        calls, start = [], 0
        for piece in pieces:
            given = _given(args, kwargs, draw.shape, piece.shape, dim, start)
            if given is None:
                return None
            calls.append((piece.state, *given))
            start += piece.shape[dim] if piece.shape else 0
        with no_torch_function():
            after = generator.get_state()
        made: list[Any] = []
        try:
            for state, own, named in calls:
                with no_torch_function():
                    generator.set_state(state)
                made.append(func(*own, **named))
        except Exception:  # the operands do not fit together in parts
            return None
        finally:
            with no_torch_function():
                generator.set_state(after)
        together = result if args and result is args[0] else _joined(made, result)
        self.count += together is not None and len(pieces) > 1 and not again
        return together


def _given(
    args: Sequence[object], kwargs: Mapping[str, object], whole: Shape, piece: Shape, dim: int, start: int
) -> tuple[list[object], dict[str, object]] | None:
    """The arguments of the call that draws a piece: parts of its tensors, or its sizes. None if there are neither."""

    def cut(value: object) -> object:
        if (
            not whole
            or not isinstance(value, torch.Tensor)
            or value.ndim != len(whole)
            or value.shape[dim] != whole[dim]
        ):
            return value
        return value.narrow(dim, start, piece[dim])

    named = tree_map(cut, dict(kwargs))
    if any(isinstance(value, torch.Tensor) for value in args):
        return [cut(value) for value in args], named
    for at, value in enumerate(args):
        if isinstance(value, (tuple, list)) and tuple(value) == whole:
            return [*args[:at], piece, *args[at + 1 :]], named
    size = kwargs.get("size")
    if isinstance(size, (tuple, list)) and tuple(size) == whole:
        return list(args), named | {"size": piece}
    return (list(piece), named) if tuple(args) == whole else None


def _joined(made: Sequence[object], whole: object) -> object | None:
    """One result of the parts, as long along every dim as the ``whole``; None if there is no such."""
    if isinstance(whole, tuple):
        joined = [_joined(parts, one) for parts, one in zip(zip(*made, strict=True), whole, strict=True)]
        lost = any(one is None and there is not None for one, there in zip(joined, whole, strict=True))
        return None if lost else tuple(joined)
    if not isinstance(whole, torch.Tensor):
        return whole
    parts = [one for one in made if isinstance(one, torch.Tensor)]
    dims = [at for at, length in enumerate(whole.shape) if parts[0].shape[at] != length]
    if len(dims) > 1 or (len(parts) > 1 and not dims):
        return None
    one = torch.cat(parts, dims[0]) if dims else parts[0]
    return one if one.shape == whole.shape else None
