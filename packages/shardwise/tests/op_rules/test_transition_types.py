"""The type after a transition: where the axis goes in the partition spec, and which steps a spec cannot follow."""

from __future__ import annotations

import pytest

from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transition_types import TransitionCall, parts_of, type_after
from shardwise.types.placement import UNKNOWN, I, P, PerMeshAxisSpmdType, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import Ground, TensorType

DP, TP = MeshAxis.of(2, 4), MeshAxis.of(4, 1)
BOTH = MeshAxis.of(8, 1)


def typed(placement: PerMeshAxisSpmdType, *entries: object) -> TensorType:
    """Two dims, sharded as ``entries`` say; ``placement`` on tp, and V on what shards besides."""
    axes = {axis: V for entry in entries for axis in (entry if isinstance(entry, tuple) else (entry,)) if axis}
    spec = PartitionSpec(*entries) if entries else None  # type: ignore[arg-type]
    return TensorType.of({**axes, TP: V if isinstance(placement, S) else placement}, spec)


def step(op: str, src: PerMeshAxisSpmdType, dst: PerMeshAxisSpmdType, *axes: MeshAxis) -> TransitionCall:
    return TransitionCall(op, axes[0] if len(axes) == 1 else BOTH, axes or (TP,), src, dst, 2, op)


@pytest.mark.parametrize(
    ("op", "src", "before", "dst", "after"),
    [
        ("all_gather", S(1), typed(V, None, TP), R, typed(R)),
        ("all_gather", S(0), typed(V, (DP, TP), None), R, typed(R, DP, None)),
        ("reduce_scatter", P, typed(P), S(0), typed(V, TP, None)),
        ("reduce_scatter", P, typed(P, DP, None), S(0), typed(V, (DP, TP), None)),
        ("reduce_scatter", P, typed(P, DP, None), S(-1), typed(V, DP, TP)),
        ("all_to_all", S(0), typed(V, TP, None), S(1), typed(V, None, TP)),
        ("convert", I, typed(I, DP, None), S(0), typed(V, (DP, TP), None)),
        ("all_reduce", P, typed(P, None, DP), I, typed(I, None, DP)),
        ("reinterpret", V, typed(V, DP, None), P, typed(P, DP, None)),
    ],
    ids=str,
)
def test_the_axis_is_taken_off_one_dim_and_put_on_another(
    op: str, src: PerMeshAxisSpmdType, before: TensorType, dst: PerMeshAxisSpmdType, after: TensorType
) -> None:
    found = type_after(step(op, src, dst, TP), before)
    assert found.refusal is None
    assert found.type is after


@pytest.mark.parametrize(
    ("op", "src", "before", "dst", "code"),
    [
        ("all_gather", S(0), typed(V, (TP, DP), None), R, "SW410"),
        ("all_gather", V, typed(V, TP, None), R, "SW412"),
        ("reduce_scatter", P, typed(P), V, "SW412"),
        ("convert", R, typed(R), V, "SW412"),
        ("all_gather", S(0), typed(V), R, "SW408"),
        ("all_reduce", P, typed(V, TP, None), R, "SW201"),
        ("all_gather", S(0), typed(R).with_ground(Ground.CONSTANT), R, "SW406"),
        ("all_gather", S(0), typed(V, TP, None).with_uneven({TP}), R, "SW417"),
    ],
    ids=str,
)
def test_what_a_spec_cannot_follow_is_refused(
    op: str, src: PerMeshAxisSpmdType, before: TensorType, dst: PerMeshAxisSpmdType, code: str
) -> None:
    found = type_after(step(op, src, dst, TP), before)
    assert found.refusal is not None
    assert found.refusal.code == code
    if dst is V:
        assert found.type.get(TP) is UNKNOWN


def test_lengths_that_are_given_may_differ() -> None:
    before = typed(V, TP, None).with_uneven({TP})
    assert type_after(step("all_gather", S(0), R, TP), before, sized=True).refusal is None


def test_a_local_axis_is_not_followed_and_not_mixed_with_a_global_one() -> None:
    local = type_after(step("all_gather", S(0), R, TP), typed(V, (TP, DP), None), {TP})
    assert local.refusal is None
    assert local.type is typed(R, DP, None)
    mixed = type_after(step("all_gather", S(0), R, DP, TP), typed(V, (DP, TP), None), {DP})
    assert mixed.refusal is not None
    assert mixed.refusal.code == "SW413"


def test_entries_are_stacked_on_a_new_dim_and_taken_off_it() -> None:
    stacked = type_after(step("all_gather", V, R, TP), typed(V, DP, None), {TP})
    assert stacked.type.spec == PartitionSpec(None, DP, None)
    taken = type_after(step("reduce_scatter", P, V, TP), typed(P, None, DP), {TP})
    assert taken.type.spec == PartitionSpec(DP)


def test_an_axis_is_made_up_of_itself_or_of_those_that_flatten_to_it() -> None:
    type = typed(V, (DP, TP), None)
    assert parts_of(TP, type) == (TP,)
    assert parts_of(BOTH, type) == (DP, TP)
    assert parts_of(BOTH, typed(R)) == ()
