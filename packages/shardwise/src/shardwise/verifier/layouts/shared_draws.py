"""Which random draws do ranks share out? Each makes some of those that one rank makes, from generators in equal states.

for i in own_samples:
    noise(torch.Generator().manual_seed(i))        together the noise of one rank, wherever a sample lies
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from shardwise.interop.running.recording import Draw, Key

from ..distance.value_comparison import Entries

Made = Counter[tuple[bytes, tuple[int, ...]]]
"""How often there were draws from a generator in a state, of a shape."""


def shared_out(ranks: Sequence[Entries], alone: Entries) -> frozenset[Key]:
    """The sources of draws of which every rank makes a part, and all ranks together what one rank makes."""
    whole = _made(alone)
    parts = [_made(run) for run in ranks]
    return frozenset(
        source
        for source, made in whole.items()
        if _is_shared_out([part.get(source, Counter()) for part in parts], made)
    )


def drawn_alike(ranks: Sequence[Entries], alone: Entries) -> bool:
    """Have all runs drawn the same before a parameter is seen? Then what ranks hold is cut of the same weights."""
    first, *others = map(_initial, (alone, *ranks))
    return all(other == first for other in others)


def _initial(run: Entries) -> dict[Key, tuple[bytes, tuple[int, ...]]]:
    before = itertools.takewhile(lambda entry: entry[0].kind != "parameter", run.items())
    return {key: (draw.state, draw.shape) for key, draw in before if isinstance(draw, Draw)}


def _is_shared_out(parts: Sequence[Made], whole: Made) -> bool:
    together: Made = Counter()
    for part in parts:
        together |= part
    return together == whole and any(part != whole for part in parts)


def _made(run: Entries) -> dict[Key, Made]:
    """The draws of a run by their source, without the sources where a generator was not seeded."""
    made: dict[Key, Made] = {}
    unseeded = set()
    for key, draw in run.items():
        if isinstance(draw, Draw):
            made.setdefault(key.source, Counter())[draw.state, draw.shape] += 1
            if not draw.seeded:
                unseeded.add(key.source)
    return {source: draws for source, draws in made.items() if source not in unseeded}
