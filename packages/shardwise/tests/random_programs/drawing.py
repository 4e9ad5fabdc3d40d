"""How random programs are drawn: typed inputs, and steps as numbers that find their operands when the program runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from .program import OPERATORS, TRANSITIONS, Draw, Input, RandomProgram, Shape, placements

MESHES = ((2,), (3,), (2, 2))
LONGEST = 24
"""Draws of a program."""
NUMBER = st.integers(0, 11)
NAMES = st.one_of(
    st.sampled_from(tuple(OPERATORS)), st.sampled_from(tuple(OPERATORS)), st.sampled_from(tuple(TRANSITIONS))
)
DRAWS = st.lists(
    st.builds(Draw, NAMES, st.tuples(NUMBER, NUMBER, NUMBER), st.tuples(NUMBER, NUMBER)), max_size=LONGEST // 2
)


@st.composite
def programs(draw: st.DrawFn, *, local: bool, meshes: Sequence[tuple[int, ...]] = MESHES) -> RandomProgram:
    """A program with local or with global types."""
    mesh = draw(st.sampled_from(meshes))
    size = math.prod(mesh)
    square, any_shape = (size, size), st.lists(st.sampled_from((size, 2 * size)), min_size=1, max_size=3).map(tuple)
    shapes: list[Shape] = draw(st.lists(st.one_of(st.just(square), st.just(square), any_shape), min_size=1, max_size=3))
    inputs = tuple(
        Input(shape, tuple(draw(st.sampled_from(placements(shape, local))) for _ in mesh)) for shape in shapes
    )
    return RandomProgram(local, mesh, inputs, (*draw(DRAWS), *draw(DRAWS)))  # two lists are longer on average
