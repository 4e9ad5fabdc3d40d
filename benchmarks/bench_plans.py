"""How long does a plan take, the first time and after that? And the algebra of layouts, on a mesh of 65,536 ranks.

The machine may be shared, so the least of several repeats counts.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout
from shardwise.planner.route import plan
from shardwise.types.placement import I, P, R, V
from shardwise.types.spec import make_entry, spec_of
from shardwise.types.tensor_type import TensorType

REPEATS = 5


def least(function: Callable[[], object], times: int = 1) -> float:
    """Seconds of one call."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(times):
            function()
        found.append((time.perf_counter() - start) / times)
    return min(found)


def random_type(axes: list[MeshAxis], letters: tuple[object, ...], chance: random.Random) -> TensorType:
    places = [chance.choice((*letters, 0, 1)) for _ in axes]
    cut = [
        [axis for axis, place in zip(axes, places, strict=True) if place == dim and isinstance(place, int)]
        for dim in (0, 1)
    ]
    for entry in cut:
        chance.shuffle(entry)
    local = {axis: V if isinstance(place, int) else place for axis, place in zip(axes, places, strict=True)}
    return TensorType.of(local, spec_of(map(make_entry, cut)))


def main() -> None:
    """Print milliseconds and microseconds."""
    chance = random.Random(0)
    axes = [MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(2, 2), MeshAxis.of(2, 1)]
    pairs = [(random_type(axes, (R, I, P), chance), random_type(axes, (R, I), chance)) for _ in range(60)]
    cold = []
    for src, dst in pairs:

        def fresh(src: TensorType = src, dst: TensorType = dst) -> object:
            plan.cache_clear()
            return plan((1024, 1024), "float32", src, dst)

        cold.append(least(fresh))
    cold.sort()
    src, dst = pairs[0]
    warm = least(lambda: plan((1024, 1024), "float32", src, dst), 1000)
    say = sys.stdout.write
    middle, slowest = cold[len(cold) // 2] * 1e3, cold[-1] * 1e3
    say(f"cold plan, 4 axes, 2 dims: median {middle:.2f} ms, slowest of {len(cold)} {slowest:.2f} ms\n")
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
