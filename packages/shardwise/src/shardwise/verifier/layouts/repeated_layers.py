"""A layer that several ranks hold, while another one nobody has: as where every stage of a pipeline keeps the first.

stage = layers[: depth // stages]        for layers[rank * depth // stages :][: depth // stages]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from shardwise.interop.running.recording import Key, Record

from ..distance.numbers import Against, ValueDisagreement
from .alignment import is_constant


def repeated_layer(
    key: Key,
    first: Record,
    pieces: Mapping[int, torch.Tensor],
    held: Sequence[Mapping[str, torch.Tensor]],
    alone: Mapping[str, torch.Tensor],
    found: Collection[str],
) -> ValueDisagreement | None:
    """What is wrong with ``pieces``, a parameter that some ranks hold as one rank does: its namesake of another number
    is on none.

    ``held``   initial values by name, of every rank.
    ``alone``  those of one rank.
    ``found``  those of them that some rank holds, as a whole or in parts.
    """
    whole, ranks = alone.get(key.name), sorted(pieces)
    if whole is None or is_constant(whole) or not all(torch.equal(piece, whole) for piece in pieces.values()):
        return None
    for name, value in alone.items():
        if name in found or not _is_of_another_number(name, key.name) or value.ndim != whole.ndim:
            continue
        if not is_constant(value) and not any(torch.equal(value, one) for run in held for one in run.values()):
            said = f"is that of one rank on rank {ranks[0]} and on rank {ranks[1]}, and no rank has {name}"
            return ValueDisagreement(key, first.claim, Against.SHAPE, ranks[1], (*ranks[:2],), (), (), None, said)
    return None


def _is_of_another_number(name: str, other: str) -> bool:
    """Are they the same but for one number in their paths?"""
    one, two = name.split("."), other.split(".")
    apart = [pair for pair in zip(one, two, strict=False) if pair[0] != pair[1]]
    return len(one) == len(two) and len(apart) == 1 and all(part.isdigit() for part in apart[0])
