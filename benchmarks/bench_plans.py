"""How long does a plan take, the first time and after that? And the algebra of layouts, on a mesh of 65,536 ranks.

The machine may be shared, so time is the processor's, and the least of several repeats counts.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from rows import Row

from shardwise.configuration.link_speeds import NAMED
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout
from shardwise.planner.cuts import forget
from shardwise.planner.links import Links
from shardwise.planner.route import plan
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, V
from shardwise.types.spec import make_entry, spec_of
from shardwise.types.tensor_type import TensorType

Letter = PerMeshAxisLocalSpmdType
Move = tuple[tuple[int, ...], TensorType, TensorType, Links]
COLD = "A new plan: random moves over four axes, by links alike, two slow ones, all different, and with latencies"
REPEATS = 3
MESHES = ((2, 2, 2, 2), (2, 4, 8, 2), (2, 3, 2, 5), (2, 4, 4, 8), (3, 3, 2, 4), (16, 8, 4, 2))
LENGTHS = {
    "even shards": (17280, 34560, 69120, 276480),
    "uneven shards": (640, 777, 1000, 1030, 2500, 4096, 50257),
    "fewer elements than ranks": (5, 7, 13, 30, 77, 100, 250),
}
FRESH = """
import time
from shardwise.planner.route import plan
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import P, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

a, b, c, d = MeshAxis.of(2, 64), MeshAxis.of(4, 16), MeshAxis.of(2, 8), MeshAxis.of(8, 1)
src = TensorType.of({a: V, b: V, c: P, d: V}, PartitionSpec((a, b), d, None))
dst = TensorType.of({a: V, b: R, c: V, d: V}, PartitionSpec((d, a), None, c))
start = time.process_time()
plan((64, 128, 256), "float32", src, dst)
print(time.process_time() - start)
"""


def measure(quick: bool = False) -> list[Row]:
    """Cold plans in milliseconds, a remembered one and the algebra of layouts in microseconds."""
    rows = cold(4 if quick else 150)
    fresh = [float(subprocess.check_output([sys.executable, "-c", FRESH])) for _ in range(1 if quick else 7)]
    rows.append(Row(COLD, "3 dims, the first plan of a process", "ms", None, min(fresh) * 1e3, target="5 ms"))
    axes = axes_of((2, 4, 2, 8))
    src = TensorType.of(dict.fromkeys(axes, V), spec_of(map(make_entry, (axes[:2], axes[2:]))))
    dst = TensorType.of(dict.fromkeys(axes, V), spec_of(map(make_entry, (axes[2:], axes[:2]))))
    warm = least(partial(plan, (1024, 1024), "float32", src, dst), 1000)
    rows.append(Row("A remembered plan", "2 dims over four axes", "us", None, warm * 1e6, target="10 us"))
    return rows + layouts()


def cold(count: int) -> list[Row]:
    """Of ``count`` moves each by dims and by lengths: the median, 99 of 100, and the slowest."""
    rows = []
    for ndim in (1, 2, 3, 4):
        for name, lengths in LENGTHS.items():
            chance = random.Random(f"{ndim} {name}")
            moves = [random_move(ndim, lengths, chance) for _ in range(count)]
            times = sorted(least(partial(plan_anew, *move)) * 1e3 for move in moves)
            for what, at in (("median", 0.5), ("99 of 100", 0.99), ("slowest", 1.0)):
                taken = times[min(count - 1, int(at * count))]
                rows.append(Row(COLD, f"{ndim} dims, {name}: {what}", "ms", None, taken, target="5 ms"))
    return rows


def layouts() -> list[Row]:
    """Operations on layouts, none of which lists ranks."""
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
    group = "Layouts, on a mesh of 65,536 ranks"
    return [
        Row(group, name, "us", None, least(function, 200) * 1e6, target="microseconds")
        for name, function in operations.items()
    ]


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


def random_move(ndim: int, lengths: tuple[int, ...], chance: random.Random) -> Move:
    """Between two random types; two of five may end in pending sums."""
    axes = axes_of(chance.choice(MESHES))
    shape = tuple(chance.choice(lengths) for _ in range(ndim))
    src = random_type(axes, (R, I, P), ndim, chance)
    dst = random_type(axes, (R, I, P) if chance.random() < 0.4 else (R, I), ndim, chance)
    return shape, src, dst, random_links(axes, chance)


def random_links(axes: list[MeshAxis], chance: random.Random) -> Links:
    """All alike; the outer two between nodes, the inner two inside; four that differ; and messages that take time."""
    match chance.randrange(4):
        case 0:
            return Links()
        case 1:
            return Links.of({axis: NAMED["network" if at < 2 else "nvlink"] for at, axis in enumerate(axes)})
        case 2:
            return Links.of({axis: chance.choice((10e9, 25e9, 100e9, 400e9)) for axis in axes})
    bandwidth = {axis: chance.choice((25e9, 400e9)) for axis in axes}
    return Links.of(bandwidth, {axis: chance.choice((1e-7, 1e-6, 5e-6)) for axis in axes})


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
    """Search, and remember nothing of any search before."""
    forget()
    plan.cache_clear()
    plan(shape, "float32", src, dst, links=links)
