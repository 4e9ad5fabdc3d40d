"""How long does a plan take, the first time and after that? And the algebra of layouts, on a mesh of 65,536 ranks.

The machine may be shared, so time is the processor's, and the least of several repeats counts.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from functools import partial

from shardwise.configuration.link_speeds import NAMED
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout
from shardwise.planner.links import Links
from shardwise.planner.route import plan
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, V
from shardwise.types.spec import make_entry, spec_of
from shardwise.types.tensor_type import TensorType

Letter = PerMeshAxisLocalSpmdType
REPEATS = 5
PAIRS = 100
SETTINGS = [
    *(((2, 2, 2, 2), (1024, 1024)), ((2, 4, 8, 2), (4096, 4096)), ((2, 3, 2, 5), (1000, 30))),
    *(((2, 4, 2, 8), (64, 128, 256)), ((2, 4, 4, 8), (30, 100, 70))),
]
"""Sizes of four axes with a shape; shards of the last ones of two and of three dims are uneven."""


def least(function: Callable[[], object], times: int = 1) -> float:
    """Seconds of one call."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(times):
            function()
        found.append((time.process_time() - start) / times)
    return min(found)


def axes_of(sizes: tuple[int, ...]) -> list[MeshAxis]:
    """Axes of these sizes, the first outermost."""
    return [MeshAxis.of(size, math.prod(sizes[at + 1 :])) for at, size in enumerate(sizes)]


def slow_and_fast(axes: list[MeshAxis]) -> Links:
    """The outer two between nodes, the inner two inside."""
    return Links.of({axis: NAMED["network" if at < 2 else "nvlink"] for at, axis in enumerate(axes)})


def random_type(axes: list[MeshAxis], letters: tuple[Letter, ...], ndim: int, chance: random.Random) -> TensorType:
    """One of ``letters``, or a shard of one of the dims, over each axis."""
    local: dict[MeshAxis, Letter] = {}
    cut: list[list[MeshAxis]] = [[] for _ in range(ndim)]
    for axis in axes:
        place = chance.randrange(len(letters) + ndim)
        local[axis] = V if place < ndim else letters[place - ndim]
        if place < ndim:
            cut[place].append(axis)
    for entry in cut:
        chance.shuffle(entry)
    return TensorType.of(local, spec_of(map(make_entry, cut)))


def plan_anew(shape: tuple[int, ...], src: TensorType, dst: TensorType, links: Links) -> None:
    """Search, and remember nothing of the last search but which steps there are."""
    plan.cache_clear()
    plan(shape, "float32", src, dst, links=links)


def main() -> None:
    """Print milliseconds and microseconds."""
    chance = random.Random(0)
    say = sys.stdout.write
    for sizes, shape in SETTINGS:
        axes = axes_of(sizes)
        letters = (R, I)
        ndim = len(shape)
        sources = [random_type(axes, (*letters, P), ndim, chance) for _ in range(PAIRS)]
        pairs = [(src, random_type(axes, letters, ndim, chance)) for src in sources]
        start = time.process_time()
        plan(shape, "float32", *pairs[0])
        first = time.process_time() - start
        sums = [(src, random_type(axes, (*letters, P), ndim, chance)) for src in sources]
        for name, links, moves in (
            ("all links alike", Links(), pairs),
            ("two fast, two slow", slow_and_fast(axes), pairs),
            ("sums pending at the end too", Links(), sums),
            ("sums pending at the end too, two fast, two slow", slow_and_fast(axes), sums),
        ):
            cold = [least(partial(plan_anew, shape, src, dst, links)) * 1e3 for src, dst in moves]
            cold.sort()
            under = sum(1 for one in cold if one < 5)
            middle, most, slowest = cold[len(cold) // 2], cold[len(cold) * 9 // 10], cold[-1]
            say(
                f"cold plan, axes of {sizes}, {shape}, {name}: median {middle:.2f} ms, nine of ten {most:.2f}, "
                f"slowest {slowest:.2f}, {under} of {len(cold)} under 5 ms\n"
            )
        say(f"the first of these: {first * 1e3:.2f} ms\n")
    warm = least(partial(plan, shape, "float32", *pairs[0]), 1000)
    say(f"warm plan: {warm * 1e6:.2f} us\n")
    mesh = IndexMap.compact((16, 16, 16, 16))
    part = IndexMap.of_modes([mesh.modes[1], mesh.modes[3]])
    operations: dict[str, Callable[[], object]] = {
        "complement": lambda: part.complement(65536),
        "compose": lambda: mesh.compose(part),
        "inverse": mesh.inverse,
        "divide": lambda: mesh.divide(IndexMap((8,), (1,))),
        "coalesce, and equal": lambda: mesh.coalesce() == IndexMap((65536,), (1,)),
        "orthogonal": lambda: Layout((16, 16), (4096, 16)).isorthogonal(Layout((16, 16), (256, 1))),
    }
    for name, function in operations.items():
        say(f"65,536 ranks, {name}: {least(function, 200) * 1e6:.1f} us\n")


if __name__ == "__main__":
    main()
