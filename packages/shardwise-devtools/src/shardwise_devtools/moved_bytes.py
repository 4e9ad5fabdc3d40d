"""``python -m shardwise_devtools.moved_bytes``: what moves between types send, beside DTensor's ``redistribute``.

All pairs of types that DTensor's placements can say, over meshes of two and three axes; ``--write`` renews the table in
docs/guide/moves.md. Both sides are counted by one cost model, padding included.
"""

from __future__ import annotations

import itertools
import operator
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

from shardwise.interop.tensors.dtensor_steps import NotSaidInDTensor, dtensor_steps
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.shape import MeshShape
from shardwise.planner.cost import cost_of
from shardwise.planner.route import plan
from shardwise.types.placement import P, R, V
from shardwise.types.spec import make_entry, spec_of
from shardwise.types.tensor_type import TensorType

PAGE = Path(__file__).parents[4] / "docs" / "guide" / "moves.md"
BEGIN, END = "<!-- bytes: begin -->", "<!-- bytes: end -->"
CASES = (
    ("a=2,b=2", (64,)),
    ("a=2,b=4", (64, 64)),
    ("a=8,b=4", (64, 64)),
    ("a=2,b=4", (10, 7)),
    ("a=2,b=2,c=2", (64,)),
    ("a=2,b=2,c=2", (64, 64)),
)
"""Mesh and global shape; shards of the fourth are uneven."""


@dataclass(frozen=True)
class Count:
    """How many pairs of types there are, and in how many we send less, as much, and more than DTensor."""

    pairs: int = 0
    less: int = 0
    equal: int = 0
    more: int = 0
    ours: int = 0
    theirs: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*map(operator.add, astuple(self), astuple(other)))


def types_over(axes: list[MeshAxis], ndim: int) -> list[TensorType]:
    """R, P or S(i) on every axis; on one dim in the order of the mesh, which is what DTensor's placements say."""
    found = []
    for places in itertools.product((R, P, *range(ndim)), repeat=len(axes)):
        entries = [[axis for axis, place in zip(axes, places, strict=True) if place == dim] for dim in range(ndim)]
        local = {axis: V if isinstance(place, int) else place for axis, place in zip(axes, places, strict=True)}
        found.append(TensorType.of(local, spec_of(map(make_entry, entries))))
    return found


def count(mesh: str, shape: tuple[int, ...], step: int = 1) -> Count:
    """The pairs of types in which more than one axis changes, every ``step``-th of them."""
    axes = list(MeshShape.parse(mesh).as_axes().values())
    types = types_over(axes, len(shape))
    less = equal = more = ours = theirs = 0
    with dtensor_steps(tuple(axes)) as asked:
        for src, dst in list(itertools.product(types, types))[::step]:
            if sum(_at(src, axis) != _at(dst, axis) for axis in axes) < 2:
                continue
            try:
                steps = asked(shape, "float32", src, dst)
            except NotSaidInDTensor:
                continue
            sent = sum(cost_of(one.op, one.elements, one.axis.size()).bytes for one in steps)
            planned = plan(shape, "float32", src, dst).bytes
            less, equal, more = less + (planned < sent), equal + (planned == sent), more + (planned > sent)
            ours, theirs = ours + planned, theirs + sent
    return Count(less + equal + more, less, equal, more, ours, theirs)


def _at(type: TensorType, axis: MeshAxis) -> object:
    return type.get(axis), [axis in (entry if isinstance(entry, tuple) else (entry,)) for entry in type.spec or ()]


def table() -> str:
    """The table of all cases."""
    lines = [
        "| mesh | global shape | pairs | fewer bytes | as many | more | all bytes, of DTensor's |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    counts = [count(mesh, shape) for mesh, shape in CASES]
    lines += [_row(f"`{mesh}`", str(list(shape)), one) for (mesh, shape), one in zip(CASES, counts, strict=True)]
    lines.append(_row("all of these", "", sum(counts, Count())))
    return "\n".join(lines)


def _row(mesh: str, shape: str, found: Count) -> str:
    share = f"{found.less} ({100 * found.less // found.pairs} %)"
    ratio = f"{100 * found.ours / found.theirs:.0f} %"
    return f"| {mesh} | {shape} | {found.pairs} | {share} | {found.equal} | {found.more} | {ratio} |"


def written(page: str, new: str) -> str:
    """The page with its table replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{new}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Print the table, or write it."""
    new = table()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written(PAGE.read_text("utf-8"), new), "utf-8")
    else:
        sys.stdout.write(f"{new}\n")


if __name__ == "__main__":
    main()
