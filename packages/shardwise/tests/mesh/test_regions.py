"""Types move between presentations of one region, and only where both mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.axis import MeshAxis, flatten_axes
from shardwise.mesh.current import set_current_mesh
from shardwise.mesh.regions import axes_inside, exponent_over, reinterpret, set_along
from shardwise.types.placement import UNKNOWN, I, P, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import Ground, TensorType

# 16 ranks: dense (dp 2, cp 2, tp 4) and expert (edp 2, ep 4, etp 2).
DP, CP, TP = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1)
EDP, EP, ETP = MeshAxis.of(2, 8), MeshAxis.of(4, 2), MeshAxis.of(2, 1)
DP_CP, CP_TP, DP_TP = MeshAxis.of(4, 4), MeshAxis.of(8, 1), flatten_axes((DP, TP))
NAMES = {"dp": DP, "cp": CP, "tp": TP}
of = TensorType.of


@pytest.fixture(autouse=True)
def _mesh():
    with set_current_mesh(NAMES):
        yield


@pytest.mark.parametrize("place", [R, I, V, P])
@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ((DP, CP), (DP_CP,)),
        ((DP_CP,), (DP, CP)),
        ((DP, CP, TP), (EDP, EP, ETP)),
        ((EDP, EP, ETP), (DP, CP, TP)),
        ((CP, TP), (EP, ETP)),
        ((DP_TP, CP), (DP, CP, TP)),  # a flattened axis with another one between its parts
        ((DP, CP, TP), (DP_TP, CP)),
        ((DP, CP_TP), (DP_CP, TP)),
    ],
)
def test_a_uniform_type_moves_to_the_other_presentation(source, destination, place):
    before, after = of(dict.fromkeys(source, place)), of(dict.fromkeys(destination, place))
    assert reinterpret(before, destination) is after
    assert reinterpret(before, destination, after.local) is after


def test_groups_keep_their_own_types():
    assert reinterpret(of({DP: V, CP: R, TP: R}), (EDP, EP, ETP)) is of({EDP: V, EP: R, ETP: R})
    assert reinterpret(of({DP: P, CP: P, TP: R}), (DP_CP, TP)) is of({DP_CP: P, TP: R})
    assert reinterpret(of({DP_TP: V, CP: R}), (DP, CP, TP)) is of({DP: V, CP: R, TP: V})


def test_a_type_whose_axes_are_all_there_passes_unchanged():
    type = of({DP: R, TP: V}, PartitionSpec(TP, None))
    assert reinterpret(type, (DP, CP, TP)) is type


def test_an_axis_that_nothing_speaks_about_stays_absent():
    assert reinterpret(of({DP_CP: R}), (DP, CP, TP)) is of({DP: R, CP: R})


def test_ground_and_unknown_survive():
    assert reinterpret(of({DP: R, CP: R}, ground=Ground.ZERO), (DP_CP,)) is of({DP_CP: R}, ground=Ground.ZERO)
    assert reinterpret(of({DP: UNKNOWN, CP: V}), (DP_CP,)) is of({DP_CP: UNKNOWN})


@pytest.mark.parametrize(
    ("type", "destination", "wanted", "words"),
    [
        (of({DP: V, CP: R}), (DP_CP,), None, r"\(dp, cp\) would have to be flattened.*differ: dp is V, cp is R"),
        (of({DP: R}), (DP_CP,), None, r"dp and \{dp,cp\} overlap but flatten to different rank regions.*AXIS_DEBUG=1"),
        (of({CP: R}), (EP,), None, "4 ranks, 4:2"),
        (of({DP: R}), (TP,), None, "meshes look unrelated: no axis of tp overlaps dp; .*MESH_AXIS_DEBUG=1"),
        (of({DP: R}), (), None, "meshes look unrelated"),
        (of({DP: R, CP: R}), (DP_CP,), {DP_CP: V}, r"\{dp,cp\} is wanted as V, but the tensor is R there"),
        (of({DP: R}), (DP,), {DP: V}, "dp is wanted as V, but the tensor is R there"),
        (of({DP: R}), (DP, TP), {DP: R, TP: R}, "tp is wanted as R, but no axis of the tensor's type covers it"),
    ],
)
def test_what_does_not_agree_is_refused(type, destination, wanted, words):
    with pytest.raises(SpmdTypeError, match=words) as caught:
        reinterpret(type, destination, wanted)
    assert caught.value.code == "SW133"


@pytest.mark.parametrize(
    ("source", "spec", "destination", "expected"),
    [
        ((DP, CP), ((DP, CP), None), (DP_CP,), (DP_CP, None)),
        ((DP_CP,), (None, DP_CP), (DP, CP), (None, (DP, CP))),
        ((DP, CP, TP), ((DP, CP), TP), (DP_CP, TP), (DP_CP, TP)),
        ((DP, CP, TP), ((TP, DP, CP),), (DP_CP, TP), ((TP, DP_CP),)),
        ((DP, CP, TP), ((DP, CP, TP),), (EDP, EP, ETP), ((EDP, EP, ETP),)),
        # What the new axes cannot say is forgotten from there inwards.
        ((DP, CP), ((CP, DP), None), (DP_CP,), None),
        ((DP, CP), (DP, CP), (DP_CP,), None),
        ((DP, CP, TP), ((TP, CP, DP),), (DP_CP, TP), (TP,)),
    ],
)
def test_shards_follow_whole_groups(source, spec, destination, expected):
    moved = reinterpret(of(dict.fromkeys(source, V), PartitionSpec(*spec)), destination)
    assert moved is of(dict.fromkeys(destination, V), None if expected is None else PartitionSpec(*expected))


@pytest.mark.parametrize("spec", [(DP, CP), ((CP, DP), None), ((CP, TP, DP), None)])
def test_shards_on_global_axes_are_never_forgotten(spec):
    type = of({DP: V, CP: V, TP: V}, PartitionSpec(*spec))
    with pytest.raises(SpmdTypeError, match=r"is sharded over .*cannot express") as caught:
        reinterpret(type, (DP_CP, TP), global_axes=(DP_CP,))
    assert caught.value.code == "SW133"
    assert reinterpret(type, (DP_CP, TP)).local == {DP_CP: V, TP: V}


def test_a_shard_behind_a_forgotten_one_counts_as_global_too():
    type = of({DP: V, CP: V, TP: V}, PartitionSpec((CP, TP, DP)))
    with pytest.raises(SpmdTypeError, match="cannot express") as caught:
        reinterpret(type, (DP_CP, TP), global_axes=(TP,))
    assert caught.value.code == "SW133"


@st.composite
def two_cuts(draw):
    """Two ways of cutting 2^n ranks into axes."""
    bits = draw(st.integers(1, 6))

    def cut():
        axes, at = [], 0
        while at < bits:
            width = draw(st.integers(1, bits - at))
            axes.append(MeshAxis.of(2**width, 2**at))
            at += width
        return axes

    return cut(), cut()


@given(two_cuts(), st.data())
def test_a_type_that_moves_says_the_same_of_every_digit(cuts, data):
    source, destination = cuts
    type = of({axis: data.draw(st.sampled_from([R, V, P, I])) for axis in source})
    digits = [MeshAxis.of(2, 2**bit) for bit in range(6)]
    try:
        moved = reinterpret(type, destination)
    except SpmdTypeError:
        assert len(set(type.placements)) > 1
        return
    for digit in digits:
        before = {type.get(axis) for axis in source if digit <= axis}
        after = {moved.get(axis) for axis in destination if digit <= axis}
        assert before == after
    assert reinterpret(moved, source) is type


@pytest.mark.parametrize(
    ("whole", "axes", "inside"),
    [
        (DP_CP, (TP, CP, DP), (DP, CP)),
        (DP_TP, (TP, CP, DP), (DP, TP)),
        (TP, (TP, CP), (TP,)),
        (CP_TP, (TP, DP), None),
        (CP_TP, (DP,), None),
        (CP_TP, (TP, CP, ETP), None),
    ],
)
def test_axes_inside_an_axis_make_it_up_exactly_or_not_at_all(whole, axes, inside):
    assert axes_inside(whole, axes) == inside


@pytest.mark.parametrize(
    ("axis", "scale", "found"),
    [
        (DP, {DP: 1}, 1),
        (DP, {CP: 1}, None),
        (DP_CP, {DP: -1, CP: -1}, -1),
        (DP_CP, {DP: 1, CP: 0}, None),
        (DP_CP, {DP: 1, CP: None}, None),
        (DP, {DP_CP: 2}, 2),
        (DP_CP, {DP: 1}, None),
        (EP, {CP: 1, TP: 1}, 1),
        (EP, {CP: 1, TP: 0}, None),
        (ETP, {TP: 1}, 1),
        (DP, {}, None),
    ],
)
def test_what_is_counted_by_many_ranks_is_counted_by_each_part_of_them(axis, scale, found):
    """By numbers: n m ranks that count something (n m)**e times count it n**e times along n of them."""
    assert exponent_over(axis, scale) == found
    if found is not None:
        covered = [one for one in scale if not one.isorthogonal(axis)]
        times = 1.0
        for one in covered:
            times *= one.size() ** scale[one]
        rest = flatten_axes(tuple(covered)).size() // axis.size()
        assert axis.size() ** found == times / rest**found


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({DP_CP: V, TP: R}, {DP: R, CP: R}, {DP_CP: R, TP: R}),
        ({DP_CP: V}, {DP: R}, {DP: R, CP: V}),
        ({DP: V, CP: R}, {DP_CP: I}, {DP: I, CP: I}),
        ({DP: V}, {TP: R}, {DP: V, TP: R}),
        ({}, {DP_CP: V, DP: R}, {DP: R, CP: V}),
        ({CP: R, TP: V}, {EP: V}, {CP: UNKNOWN, TP: UNKNOWN}),
    ],
)
def test_placements_are_set_along_parts_of_axes_and_along_what_is_made_of_them(before, changes, after):
    found = set_along(of(before), changes)
    assert all(one.isorthogonal(*(other for other in found.axes if other is not one)) for one in found.axes)
    assert found == of(after)
