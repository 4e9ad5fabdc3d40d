"""Over which axis a call runs, and what it costs there."""

from __future__ import annotations

import pytest

from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.names import DEFAULT_GROUP
from shardwise.mesh.shape import MeshShape
from shardwise.uniformity.calls import Trace, TracedCall, TracedGroup
from shardwise.uniformity.collective_costs import costed
from shardwise.uniformity.links_used import KnownAxes

WORLD = TracedGroup(tuple(range(8)), name=DEFAULT_GROUP)
MESH = MeshShape.parse("dp=2,tp=4").as_axes()


def message(peer: int | None, group: TracedGroup = WORLD, kind: str = "recv") -> TracedCall:
    """A message of 1000 numbers."""
    return TracedCall(kind, group, shapes=((1000,),), dtypes=("float32",), peer=peer)


@pytest.mark.parametrize(
    ("one", "other", "over"),
    [(1, 2, MESH["tp"]), (3, 0, MESH["tp"]), (1, 5, MESH["dp"]), (6, 2, MESH["dp"]), (0, 5, MeshAxis.of(8, 1))],
)
def test_a_message_over_the_default_group_goes_over_the_axes_along_which_its_ranks_differ(one, other, over):
    assert KnownAxes.of([], MESH.values()).used(message(other), one) is over


def test_a_receive_from_anybody_and_a_collective_run_over_their_group():
    known = KnownAxes.of([], MESH.values())
    assert known.used(message(None), 1) is MeshAxis.of(8, 1)
    assert known.used(TracedCall("all_reduce", WORLD, shapes=((4,),)), 1) is MeshAxis.of(8, 1)


def test_without_a_mesh_the_smallest_named_group_that_has_both_ranks_says_it():
    rows, pairs = TracedGroup((0, 1, 2, 3), name="tp"), TracedGroup((0, 1), name="ep")
    trace = Trace(0, [TracedCall("all_reduce", group) for group in (rows, pairs, WORLD)])
    known = KnownAxes.of([trace])
    assert known.used(message(1), 0) is MeshAxis.of(2, 1)
    assert known.used(message(2), 0) is MeshAxis.of(4, 1)
    assert known.used(message(5), 0) is MeshAxis.of(8, 1), "nothing joins these but the group itself"
    assert known.used(message(4), 3) is MeshAxis.of(8, 1), "neighbours, on two fibers of tp"


def test_messages_are_costed_over_the_link_of_their_axis():
    calls, links = costed(
        [Trace(0, [message(3), message(4), message(4, kind="send")])], {"tp": 400e9, "dp": 50e9}, {"dp": 1e-6}, MESH
    )
    assert [(call.axis, call.ranks, call.bytes) for call in calls] == [
        ("tp", (0, 3), 4000),
        ("dp", (0, 4), 4000),
        ("dp", (0, 4), 0),
    ]
    assert [call.seconds for call in calls] == pytest.approx([4000 / 400e9, 1e-6 + 4000 / 50e9, 1e-6])
    assert [(link.axis, link.bytes_per_s) for link in links] == [("tp", 400e9), ("dp", 50e9)]
