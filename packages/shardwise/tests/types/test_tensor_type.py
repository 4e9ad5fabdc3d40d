"""Types over all axes are interned values."""

import copy
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import UNKNOWN, I, P, R, ReductionKind, UndecidedReductionError, V
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import UNTYPED, Ground, TensorType, constant_type

AXES = [MeshAxis.of(2, 2**bit) for bit in range(4)]
PLACES = st.sampled_from([R, I, V, P, UNKNOWN])
DP, TP = AXES[3], AXES[0]


@st.composite
def tensor_types(draw):
    placements = draw(st.dictionaries(st.sampled_from(AXES), PLACES))
    dims = [[] for _ in range(draw(st.integers(0, 3)))]
    for axis in draw(st.permutations([axis for axis, place in placements.items() if place is V])):
        if dims and draw(st.booleans()):
            draw(st.sampled_from(dims)).append(axis)
    spec = PartitionSpec(*map(make_entry, dims)) if any(dims) else None
    uneven = frozenset(draw(st.sets(st.sampled_from(AXES))))
    return TensorType.of(placements, spec, draw(st.sampled_from(list(Ground))), uneven)


@pytest.mark.slow
@given(tensor_types(), st.randoms(use_true_random=False))
def test_equal_types_are_one_object_in_whatever_order_they_are_given(type, random):
    items = list(zip(type.axes, type.placements, strict=True))
    random.shuffle(items)
    spec = None if type.spec is None else PartitionSpec(*type.spec)
    assert TensorType.of(items, spec, type.ground, type.uneven) is type
    assert TensorType.of(dict(items), spec, type.ground, set(type.uneven)) is type


@given(tensor_types(), tensor_types())
def test_different_types_are_different_objects(one, other):
    same = (one.local, one.axes, one.placements, one.spec, one.ground, one.uneven) == (
        other.local,
        other.axes,
        other.placements,
        other.spec,
        other.ground,
        other.uneven,
    )
    assert (one is other) == same


@given(tensor_types())
def test_copies_are_the_same_object(type):
    assert pickle.loads(pickle.dumps(type)) is copy.copy(type) is copy.deepcopy(type) is type


@given(tensor_types())
def test_the_dual_of_the_dual_has_the_first_placements(type):
    dual = type.backward_type()
    assert dual.backward_type() is type.with_ground(Ground.ABSENT)
    assert dual.spec == type.spec


@given(tensor_types(), st.sampled_from(AXES), PLACES)
def test_a_changed_axis_leaves_the_spec_and_no_other_does(type, axis, place):
    changed = type.with_placements({axis: place})
    assert changed.get(axis) is place
    before = [a for entry in type.spec or () for a in entry_axes(entry)]
    after = [a for entry in changed.spec or () for a in entry_axes(entry)]
    assert after == [a for a in before if a is not axis or place is V]
    assert all(changed.get(a) is V for a in after)


def test_only_axes_that_shard_have_shards_that_differ_in_length():
    spec = PartitionSpec((DP, TP))
    type = TensorType.of({DP: V, TP: V, AXES[1]: R}, spec, uneven={TP, AXES[1]})
    assert type.uneven == {TP}
    assert "uneven over" in repr(type)
    assert type.backward_type().uneven == type.with_ground(Ground.CONSTANT).uneven == {TP}
    assert type.with_placements({DP: R}).uneven == {TP}
    assert type.with_placements({TP: R}).uneven == type.with_spec(None).uneven == set()
    assert type.with_uneven(()) is TensorType.of({DP: V, TP: V, AXES[1]: R}, spec)


def test_threads_that_make_one_type_at_once_get_one_object():
    made, start = [], threading.Barrier(8)

    def make():
        start.wait()
        made.append(TensorType.of({MeshAxis.of(31, 7): R}))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(map(id, made))) == 1


def test_a_type_lists_its_axes_outermost_first():
    assert TensorType.of({TP: V, DP: R}).axes == (DP, TP)
    assert repr(TensorType.of({TP: V, DP: P})) == f"{{{DP!r}: P, {TP!r}: V}}"


def test_local_is_read_only_and_without_unknown_axes():
    type = TensorType.of({TP: V, DP: UNKNOWN})
    assert type.local == {TP: V}
    assert DP in type
    assert type.get(AXES[1]) is None
    with pytest.raises(TypeError, match="does not support item assignment"):
        type.local[TP] = R


@pytest.mark.parametrize(
    "change",
    [
        lambda local: local.__delitem__(TP),
        lambda local: local.update({DP: R}),
        lambda local: local.pop(TP),
        lambda local: local.setdefault(DP, R),
        lambda local: local.clear(),
        lambda local: local.__ior__({DP: R}),
    ],
)
def test_no_way_of_changing_a_dict_changes_local(change):
    local = TensorType.of({TP: V}).local
    with pytest.raises(TypeError, match="mutate_type"):
        change(local)
    assert TensorType.of({TP: V}).local == {TP: V}


@pytest.mark.parametrize("copied", [dict, copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), dict.copy])
def test_a_copy_of_local_is_a_plain_dict(copied):
    made = copied(TensorType.of({TP: V}).local)
    made[DP] = R
    assert type(made) is dict
    assert made == {TP: V, DP: R}


def test_a_type_is_not_constructed_directly():
    with pytest.raises(TypeError, match="interned"):
        TensorType()


def test_constants_are_replicate_everywhere():
    assert constant_type((TP, DP)) is TensorType.of({TP: R, DP: R}, ground=Ground.CONSTANT)
    assert constant_type((TP,), zero=True).ground is Ground.ZERO
    assert constant_type((TP,), uniform=True).ground is Ground.UNIFORM
    assert [ground.name for ground in Ground if ground.is_constant] == ["CONSTANT", "UNIFORM", "ZERO"]
    assert UNTYPED.axes == ()


def test_a_type_is_asked_for_properties_by_axis():
    a, b, c, d, e, f, other = (MeshAxis.of(2, 2**bit) for bit in range(7, 0, -1))
    type = TensorType.of({a: R, b: I, c: V, d: P, e: P(ReductionKind("invented")), f: UNKNOWN})
    assert (type.equal_axes, type.varying_axes, type.partial_axes) == ((a, b), (c,), (d, e))
    assert [axis for axis in type.axes if type.is_equal(axis)] == [a, b]
    assert [axis for axis in type.axes if type.is_varying(axis)] == [c]
    assert [axis for axis in type.axes if type.is_partial(axis)] == [d, e]
    assert [axis for axis in (a, b, c, d, f) if type.is_pending_sum(axis, "a test")] == [d]
    with pytest.raises(UndecidedReductionError, match=r"P\(invented\)"):
        type.is_pending_sum(e, "a test")
    assert [type.is_equal(other), type.is_varying(other), type.is_pending_sum(other, "a test")] == [False] * 3
