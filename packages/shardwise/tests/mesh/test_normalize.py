"""What users write for axes, types and specs becomes axes, and what cannot is refused by its name."""

import pytest

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError
from shardwise.mesh import normalize as n
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import I, P, R, S, V
from shardwise.types.spec import PartitionSpec

TP, CP, DP, ONE = MeshAxis.of(4, 1), MeshAxis.of(2, 4), MeshAxis.of(2, 8), MeshAxis.of(1, 1)
MESH = {"dp": DP, "cp": CP, "tp": TP, "one": ONE}


@pytest.fixture(autouse=True)
def _mesh():
    with set_current_mesh(MESH):
        yield


class Hook:
    def __mesh_axis__(self):
        return TP


def test_axes_names_and_objects_with_a_hook_are_axes():
    assert n.normalize_axis("tp") is n.normalize_axis(TP) is n.normalize_axis(Hook()) is TP
    assert n.normalize_axis("one") is ONE


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(SpmdTypeError, match="no axis named 'tpp'; its axes are 'cp', 'dp', 'one', 'tp'") as caught:
        n.normalize_axis("tpp")
    assert caught.value.code == "SW902"
    assert caught.value.help == ("did you mean 'tp'",)


def test_a_name_that_an_outer_mesh_has_is_noted():
    with (
        set_current_mesh({"etp": TP}),
        pytest.raises(SpmdTypeError, match="an outer mesh has 'dp', but the current mesh hides it") as caught,
    ):
        n.normalize_axis("dp")
    assert caught.value.code == "SW902"


def test_a_mesh_without_names_says_so():
    with set_current_mesh(frozenset({TP})), pytest.raises(SpmdTypeError, match="its axes have no names") as caught:
        n.normalize_axis("zz")
    assert caught.value.code == "SW902"


@pytest.mark.parametrize("wrong", [3, None, 2.5, True, ["tp"]])
def test_what_is_no_axis_is_a_type_error_that_shows_it(wrong):
    with pytest.raises(SpmdArgumentError, match="of type " + type(wrong).__name__) as caught:
        n.normalize_axis(wrong)
    assert caught.value.code == "SW905"


@pytest.mark.parametrize(
    ("axis", "printed"), [("tp", "'tp'"), (TP, "tp"), (Hook(), "tp"), (3, "3"), (None, "None"), (CP, "cp")]
)
def test_axes_print_as_themselves_and_names_in_quotes(axis, printed):
    assert n.format_axis(axis) == printed


def test_a_mesh_loses_axes_of_one_rank():
    assert n.normalize_mesh(frozenset({TP, ONE})) == {TP}
    assert n.normalize_mesh(frozenset()) == frozenset()


def test_a_mesh_of_overlapping_axes_is_refused():
    with (
        set_current_mesh({"tp": TP}),
        pytest.raises(SpmdTypeError, match=r"MeshAxis\(8:1\).* and tp \(4:1\).*not orthogonal") as caught,
    ):
        n.normalize_mesh(frozenset({TP, MeshAxis.of(8, 1)}))
    assert caught.value.code == "SW901"


def test_local_types_get_axes_for_keys():
    assert n.normalize_local_type({"tp": R, DP: V, "one": P}) == {TP: R, DP: V}
    assert n.normalize_local_type({"tp": R, TP: R}) == {TP: R}


@pytest.mark.parametrize(
    ("types", "error", "code", "words"),
    [
        ({"tp": S(0)}, TypeError, "SW132", r"on axis 'tp' must be R, I, V or P, got S\(0\)"),
        ({"tp": "R"}, TypeError, "SW132", "must be R, I, V or P, got 'R'"),
        ({3: R}, TypeError, "SW905", "got 3 of type int"),
        ({"tp": R, TP: V}, SpmdTypeError, "SW130", "tp is given twice.* as R and as V"),
        ({"tp": R, MeshAxis.of(2, 2): V}, SpmdTypeError, "SW901", "independent radix dimensions"),
    ],
)
def test_wrong_local_types_are_refused(types, error, code, words):
    with pytest.raises(error, match=words) as caught:
        n.normalize_local_type(types)
    assert isinstance(caught.value, SpmdTypeError)
    assert caught.value.code == code
    assert "PerMeshAxis" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "normal"),
    [
        ((), ()),
        ((None, "tp"), (None, TP)),
        ((("dp", "tp"), CP), ((DP, TP), CP)),
        ((("tp", "dp"), None), ((TP, DP), None)),
        (("one", ("one", "tp")), (None, TP)),
        ((("tp",), ("one",)), (TP, None)),
    ],
)
def test_specs_are_put_in_normal_form(spec, normal):
    found = n.normalize_partition_spec(PartitionSpec(*spec))
    assert found == normal
    assert type(found) is PartitionSpec
    assert n.normalize_partition_spec(found) == found
    assert PartitionSpec(*spec).axes_with_partition_spec() == {
        axis for entry in normal if entry is not None for axis in (entry if isinstance(entry, tuple) else (entry,))
    }


@pytest.mark.parametrize(
    ("spec", "error", "code", "words"),
    [
        ((None, ()), ValueError, "SW132", "for dim 1 is the empty tuple.*is None"),
        (("tp", "tp"), SpmdTypeError, "SW901", "tp is used twice.*not orthogonal to itself"),
        ((("tp", TP),), SpmdTypeError, "SW901", "tp is used twice"),
        (("tp", MeshAxis.of(2, 2)), SpmdTypeError, "SW901", "not orthogonal.*independent radix dimensions"),
        ((3,), TypeError, "SW905", "got 3 of type int"),
        (("zz",), SpmdTypeError, "SW902", "no axis named 'zz'"),
    ],
)
def test_wrong_specs_are_refused(spec, error, code, words):
    with pytest.raises(error, match=words) as caught:
        n.normalize_partition_spec(PartitionSpec(*spec))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("types", "ndim", "order", "spec"),
    [
        ({}, 2, None, (None, None)),
        ({"tp": S(0), "dp": R}, 2, None, (TP, None)),
        ({"tp": S(-1), DP: S(0), "cp": P}, 3, None, (DP, None, TP)),
        ({"dp": S(0), "tp": S(0)}, 1, None, ((DP, TP),)),
        ({"dp": S(0), "tp": S(0)}, 1, ("dp", "tp"), ((DP, TP),)),
        ({"dp": S(0), "tp": S(0)}, 1, ("tp", DP), ((TP, DP),)),
        ({"dp": S(0), "cp": S(1), "tp": S(0)}, 2, ("tp", "dp"), ((TP, DP), CP)),
        ({"one": S(0), "tp": S(0)}, 1, None, (TP,)),
        ({"tp": S(0), TP: S(-2)}, 2, None, (TP, None)),
    ],
)
def test_shards_make_a_spec(types, ndim, order, spec):
    before = dict(types)
    assert n.shard_types_to_partition_spec(types, ndim, order) == spec
    assert types == before
    assert list(types) == list(before)


@pytest.mark.parametrize(
    ("types", "ndim", "order", "error", "code", "words"),
    [
        ({"tp": S(0), "dp": S(0)}, 2, None, SpmdTypeError, "SW131", "dp, tp all shard dim 0.*axis_order"),
        ({"dp": S(0), "tp": S(0)}, 2, ("dp",), SpmdTypeError, "SW131", "dp, tp all shard dim 0.*axis_order"),
        ({"tp": S(2)}, 2, None, SpmdTypeError, "SW132", r"S\(2\) names a dim that a tensor with ndim 2"),
        ({"tp": S(-3)}, 2, None, SpmdTypeError, "SW132", r"S\(-3\) names a dim .* ndim 2"),
        ({"tp": S(0)}, 0, None, SpmdTypeError, "SW132", r"S\(0\) names a dim .* ndim 0"),
        ({"one": S(5)}, 2, None, SpmdTypeError, "SW132", r"S\(5\)"),
        ({"tp": S(0), TP: S(1)}, 2, None, SpmdTypeError, "SW131", r"given twice.* S\(0\) and as S\(1\)"),
        ({"tp": S}, 2, None, TypeError, "SW132", "must be R, I, V, P or S"),
        ({"tp": S(0), MeshAxis.of(2, 2): S(1)}, 2, None, SpmdTypeError, "SW901", "not orthogonal"),
    ],
)
def test_shards_that_make_no_spec_are_refused(types, ndim, order, error, code, words):
    with pytest.raises(error, match=words) as caught:
        n.shard_types_to_partition_spec(types, ndim, order)
    assert caught.value.code == code


def test_a_spec_tells_the_shard_of_each_axis():
    spec = PartitionSpec(None, ("dp", "tp"), "cp")
    assert n.partition_spec_to_shard_types(spec) == {DP: S(1), TP: S(1), CP: S(2)}
    assert n.partition_spec_get_shard(spec, "tp") == S(1)
    assert n.partition_spec_get_shard(spec, CP) == S(2)
    assert n.partition_spec_get_shard(PartitionSpec("tp", "one"), "one") is None
    assert n.partition_spec_get_shard(PartitionSpec("tp", None), "dp") is None
    assert n.partition_spec_get_shard(None, "dp") is None


def test_partial_and_invariant_are_no_shards():
    assert n.shard_types_to_partition_spec({"tp": P, "dp": I, "cp": V}, 1) == (None,)
