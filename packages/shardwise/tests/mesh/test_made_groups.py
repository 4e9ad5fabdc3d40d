"""The mesh of groups that a program makes by hand."""

from __future__ import annotations

import pytest

from shardwise.mesh.made_groups import axes_of_groups


def groups(size, stride, world):
    """Every group of ``size`` ranks that are ``stride`` apart."""
    return [tuple(range(at, at + size * stride, stride)) for at in range(world) if at // stride % size == 0]


@pytest.mark.parametrize(
    ("made", "world", "axes"),
    [
        ([*groups(2, 1, 8), *groups(4, 2, 8)], 8, {"axis0": 4, "axis1": 2}),
        ([*groups(4, 1, 8), *groups(2, 4, 8), (0, 7), tuple(range(8))], 8, {"axis0": 2, "axis1": 4}),
        # Tensor, data and pipeline axes, and the groups of two of them together.
        (
            [*groups(2, 1, 8), *groups(2, 2, 8), *groups(2, 4, 8), *groups(4, 1, 8)],
            8,
            {"axis0": 2, "axis1": 2, "axis2": 2},
        ),
        # Nobody made the groups of the other axis.
        (groups(2, 1, 8), 8, {"axis0": 4, "axis1": 2}),
        (groups(2, 4, 8), 8, {"axis0": 2, "axis1": 4}),
        ([tuple(range(4))], 4, {}),
        ([], 4, {}),
        ([(0, 1)], 4, {}),
        ([(0, 1, 3), (2,)], 4, {}),
        ([(1, 0), (3, 2)], 4, {"axis0": 2, "axis1": 2}),
    ],
)  # fmt: skip
def test_the_axes_are_those_whose_groups_cover_all_ranks(made, world, axes):
    assert axes_of_groups(made, world) == axes
