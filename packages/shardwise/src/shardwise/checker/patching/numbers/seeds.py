"""The seed of the default generators: along which axes it differs, if it was made of the number of this rank."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ...state.numbers import joined, plain
from ..patches import Plugin, checking_session


@functools.cache
def _manual_seed(seeding: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(seeding)
    def manual_seed(seed: object) -> object:
        session = checking_session()
        if session is not None:
            session.seeded_apart = frozenset(joined([seed]).varying_axes)
        return seeding(plain(seed))

    return manual_seed


PLUGIN = Plugin("seeds", everywhere=lambda: {torch.manual_seed: _manual_seed(torch.manual_seed)})
