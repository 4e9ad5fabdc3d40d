"""How a page names the dims of its example, and what it says of one that is not simply kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from shardwise.op_rules.propagation.dim_labels import Fate

_NUMBERED = re.compile(r"(\D+)(\d+)")

FATES = {
    Fate.SUM: "summed, so shards give a pending sum",
    Fate.TOTAL: "the result is a sum over it, so shards give a pending sum",
    Fate.MEAN: "averaged, and a shard has the mean of its own elements only",
    Fate.MAXIMUM: "reduced to its largest element, so shards give a pending maximum",
    Fate.MINIMUM: "reduced to its smallest element, so shards give a pending minimum",
    Fate.NORM: "the root of the sum of its squares, so shards give a pending norm",
    Fate.EXTREMUM: "reduced as a whole, which no shard can do alone",
    Fate.OPAQUE: "needed whole: no shard can do its part alone",
    Fate.POSITION: "kept, but values depend on the position along it, which a shard does not know",
}


def from_front(rows: Iterable[Sequence[str | None]]) -> dict[str, str]:
    """What labels are called on a page: where operands are broadcast rules count from the last dim, readers from the
    first. ``rows`` are the labels of each operand.

    Example:
        >>> from_front([("d2", "d1", "d0"), ("d1", "d0")])
        {'d2': 'd0', 'd1': 'd1', 'd0': 'd2'}
        >>> from_front([("d0", "d1", "k")])
        {}
    """
    found: dict[str, list[list[int]]] = {}
    for row in rows:
        numbers: dict[str, list[int]] = {}
        for label in row:
            if label is not None and (parts := _NUMBERED.fullmatch(label)):
                numbers.setdefault(parts[1], []).append(int(parts[2]))
        for name, listed in numbers.items():
            found.setdefault(name, []).append(listed)
    names: dict[str, str] = {}
    for name, lists in found.items():
        if any(len(one) > 1 for one in lists) and all(one == sorted(one, reverse=True) for one in lists):
            every = sorted({number for one in lists for number in one}, reverse=True)
            names |= {f"{name}{number}": f"{name}{every[0] - number}" for number in every}
    return names


def words(dims: Sequence[str | None], names: Mapping[str, str]) -> str:
    """Labels in a row; ``-`` is a dim without one."""
    return " ".join("-" if label is None else names.get(label, label) for label in dims)
