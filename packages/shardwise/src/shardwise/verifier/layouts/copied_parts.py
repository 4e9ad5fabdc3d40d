"""Gradients of a flat copy that an optimizer steps, given to the parameters that it holds pieces of.

The memory of a copy does not tell whose elements it has, but before the first step its values do. Rank 1 of 2:

    parameters    0.weight, 6 elements                   0.bias, 3 elements
    the copy      elements 3 to 6 of 0.weight            element 2 of 0.bias, and one of padding

A copy in the shape of its parameter, as the float32 master of a weight, is found likewise, and several copies are of
several parameters. Where that is so in every run, gradients have the names of parameters; a copy that is cut otherwise
keeps its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from shardwise.interop.running.recording import Draw, HeldElements, Key, Record

from ..records.flat_parts import FlatPart
from ..records.naming import NAMELESS
from ..records.record import RankRun
from .alignment import is_constant


@dataclass(frozen=True)
class _Copies:
    """The copies of one run, by name, and what each has."""

    run: RankRun
    parts: Mapping[str, Sequence[FlatPart]]


def with_copies_named(ranks: Sequence[RankRun], alone: RankRun) -> tuple[list[RankRun], RankRun]:
    """The runs with gradients of copies as gradients of parameters, where every run tells whose they are."""
    found = [_Copies(run, _copies(run, len(ranks))) for run in ranks] + [_Copies(alone, _copies(alone, 1))]
    names = set.intersection(*(set(one.parts) for one in found))
    if not names:
        return list(ranks), alone
    named = [_named(replace(one, parts={name: one.parts[name] for name in names})) for one in found]
    return named[:-1], named[-1]


def _copies(run: RankRun, ranks: int) -> dict[str, list[FlatPart]]:
    records = [one for one in run.entries if isinstance(one, Record) and one.key.kind == "parameter"]
    initial = {one.key.name: one.value for one in records if one.value is not None}
    wholes = {name: value for name, value in initial.items() if not name.startswith(NAMELESS)}
    found: dict[str, list[FlatPart]] = {}
    for name, value in initial.items():
        if name.startswith(NAMELESS):
            parts = parts_of_copy(value, wholes, ranks)
            wholes = {name: whole for name, whole in wholes.items() if name not in {part.name for part in parts}}
            if parts:
                found[name] = parts
    # Zeros are also the memory of parameters that is filled where they are used, of which nothing is a copy.
    return {} if all(is_constant(initial[name]) for name in found) else found


def parts_of_copy(copy: torch.Tensor, wholes: Mapping[str, torch.Tensor], ranks: int) -> list[FlatPart]:
    """What ``copy`` has of each of ``wholes``, each cut evenly over ``ranks`` or some of them; empty if it is no copy.

    Of wholes with equal values the first is taken, in every run alike. A copy of more dims is of one whole.
    """
    if copy.ndim != 1:
        same = (name for name, whole in wholes.items() if whole.shape == copy.shape and _begins(copy, whole))
        return [FlatPart(name, tuple(copy.shape), 0, copy.numel(), 0) for name in itertools.islice(same, 1)]
    for number in (number for number in range(1, ranks + 1) if ranks % number == 0):
        for place in range(number):
            parts = _cut(copy, wholes, number, place)
            if parts:
                return parts
    return []


def _cut(copy: torch.Tensor, wholes: Mapping[str, torch.Tensor], number: int, place: int) -> list[FlatPart]:
    """The parts, one behind the other, if each whole is cut by ``number`` and nothing is left over."""
    pieces = {name: _piece(whole, number, place) for name, whole in wholes.items()}
    parts: list[FlatPart] = []
    at = 0
    while at < len(copy):
        name = next((name for name, (_, x) in pieces.items() if len(x) and _begins(copy[at:], x)), None)
        # Of a whole with fewer elements than ranks the last of them have padding alone.
        name = name or next((name for name, (_, x) in pieces.items() if not len(x)), None)
        if name is None:
            return []
        start, piece = pieces.pop(name)
        if len(piece):
            parts.append(FlatPart(name, tuple(wholes[name].shape), start, start + len(piece), at))
        at += _length(wholes[name], number)
    return parts if at == len(copy) else []


def _piece(whole: torch.Tensor, number: int, place: int) -> tuple[int, torch.Tensor]:
    """Where the piece begins, and its elements."""
    start = place * _length(whole, number)
    return start, whole.reshape(-1)[start : start + _length(whole, number)]


def _begins(flat: torch.Tensor, piece: torch.Tensor) -> bool:
    return torch.equal(flat[: len(piece)].to(piece.dtype), piece)


def _length(whole: torch.Tensor, number: int) -> int:
    return -(-whole.numel() // number)


def _named(copies: _Copies) -> RankRun:
    entries: list[Record | Draw] = []
    befores = []
    for entry in copies.run.entries:
        befores.append(len(entries))
        parts = copies.parts.get(entry.key.name)
        if parts is None or not isinstance(entry, Record) or entry.key.kind not in ("parameter", "gradient", "trained"):
            entries.append(entry)
        elif entry.key.kind == "gradient":
            entries += (_gradient(entry, part) for part in parts)
    befores.append(len(entries))
    return replace(copies.run, entries=entries, steps=[befores[at] for at in copies.run.steps])


def _gradient(record: Record, part: FlatPart) -> Record:
    """What ``record``, the gradient of a copy, says of one parameter."""
    key = Key(record.key.kind, part.name, record.key.location, record.key.nth)
    held = HeldElements(part.shape, ((part.start, part.stop),))
    value = None if record.value is None else record.value.flatten()[part.first : part.first + part.stop - part.start]
    if value is not None and len(value) == held.count:
        return replace(record, key=key, value=value.view(part.shape))
    return replace(record, key=key, value=value, held=held)
