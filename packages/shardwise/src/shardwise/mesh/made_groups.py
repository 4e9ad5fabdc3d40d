"""The axes of a mesh that nobody has named: those of the groups of ranks that a program has made by hand.

A program that makes its groups with ``new_group`` makes one for every place along the other axes, so the groups of an
axis cover all ranks, are of one size, and their members are equally far apart:

    (0, 1) (2, 3) (4, 5) (6, 7)      size 2, stride 1: the inner axis
    (0, 2, 4, 6) (1, 3, 5, 7)        size 4, stride 2: the outer one

Pure: ranks in, sizes out. Groups of other forms (of all ranks, of the first and the last stage) are no axes.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection


def axes_of_groups(groups: Collection[tuple[int, ...]], world_size: int) -> dict[str, int]:
    """Sizes of the axes, outermost first, named ``axis0``, ``axis1``...; empty if the groups are of no mesh.

    Of several meshes that they may be of, that with the smallest inner axes; what they leave open is an axis as well.
    """
    covered: dict[tuple[int, int], set[int]] = defaultdict(set)
    for group in groups:
        ranks = sorted(group)
        strides = {after - before for before, after in itertools.pairwise(ranks)}
        if len(strides) == 1:
            covered[strides.pop(), len(ranks)].update(ranks)
    whole = {kind for kind, ranks in covered.items() if len(ranks) == world_size}
    inner_first: list[int] = []
    below = 1
    while below < world_size:
        sizes = [size for stride, size in whole if stride == below and world_size % (below * size) == 0]
        beyond = [stride for stride, _ in whole if stride > below and stride % below == 0 == world_size % stride]
        size = min(sizes, default=min(beyond, default=world_size) // below)
        inner_first.append(size)
        below *= size
    found = list(reversed(inner_first))
    return {f"axis{at}": size for at, size in enumerate(found)} if len(found) > 1 else {}
