"""The pure half of assert_type: what arguments mean, and refining as a function of two types."""

import gc
import itertools
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.annotations import annotating
from shardwise.interop.annotations.annotating import asserted_type
from shardwise.interop.annotations.refining import overrule, refine
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import UNKNOWN, I, P, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.spmd_type import SpmdType
from shardwise.types.tensor_type import EMPTY_TYPE, UNKNOWN_TYPE, UNTYPED, Ground, TensorType, constant_type

DP, CP, TP, ONE = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1), MeshAxis.of(1, 1)
MESH = {"dp": DP, "cp": CP, "tp": TP, "one": ONE}
of = TensorType.of


class Group:
    """A stand-in for a process group."""

    def __init__(self, axis):
        self.axis = axis

    def __mesh_axis__(self):
        return self.axis


@pytest.fixture(autouse=True)
def _mesh():
    with set_current_mesh(MESH):
        yield


MEANINGS = [
    # one dict; keys mix names, axes and groups
    (({"tp": R, DP: V, Group(CP): P},), of({TP: R, DP: V, CP: P})),
    (({"tp": R, "one": V, ONE: P},), of({TP: R})),
    (({},), UNTYPED),
    # shards become V and a spec; negative dims count from the end
    (({"tp": S(1)},), of({TP: V}, PartitionSpec(None, TP))),
    (({"tp": S(-1), "dp": S(0)},), of({TP: V, DP: V}, PartitionSpec(DP, TP))),
    (({"one": S(0)},), UNTYPED),
    (({"tp": S(0), TP: S(-2)},), of({TP: V}, PartitionSpec(TP, None))),
    # a spec, by position or beside a dict
    (({}, PartitionSpec("dp", None)), of({DP: V}, PartitionSpec(DP, None))),
    (({}, PartitionSpec(("dp", "one", "tp"), None)), of({DP: V, TP: V}, PartitionSpec((DP, TP), None))),
    (({"tp": R}, PartitionSpec("dp", None)), of({TP: R, DP: V}, PartitionSpec(DP, None))),
    (({"dp": V}, PartitionSpec("dp", None)), of({DP: V}, PartitionSpec(DP, None))),
    # a spec that shards nothing says what no spec says
    (({"tp": R}, PartitionSpec(None, "one")), of({TP: R})),
    # a bare type fills the mesh axes that nothing else names
    ((R,), of({DP: R, CP: R, TP: R})),
    ((I, {"tp": V}), of({DP: I, CP: I, TP: V})),
    ((R, PartitionSpec("tp", None), {Group(CP): P}), of({DP: R, CP: P, TP: V}, PartitionSpec(TP, None))),
    # a spec as a plain tuple
    (({}, (("dp", "cp"), None)), of({DP: V, CP: V}, PartitionSpec((DP, CP), None))),
    (({"tp": R}, (None, DP)), of({TP: R, DP: V}, PartitionSpec(None, DP))),
    # a copied type, corrected on one axis
    (({TP: V, DP: V, "tp": I},), of({TP: I, DP: V})),
    (({TP: V, Group(TP): S(-1)},), of({TP: V}, PartitionSpec(None, TP))),
    # the general form, in any order
    ((None, {"tp": R}, None, SpmdType({"dp": S(0)})), of({TP: R, DP: V}, PartitionSpec(DP, None))),
    ((SpmdType({"tp": R}, PartitionSpec("dp", None)), {"tp": R}), of({TP: R, DP: V}, PartitionSpec(DP, None))),
    ((PartitionSpec("dp", None), PartitionSpec(DP, None), {}), of({DP: V}, PartitionSpec(DP, None))),
]


@pytest.mark.parametrize(("types", "meaning"), MEANINGS)
def test_arguments_mean(types, meaning):
    assert asserted_type(types, 2) is meaning
    assert asserted_type(types, 2) is meaning, "and the same when remembered"


CONTRADICTIONS = [
    ("SW132", "one entry per dim", ({}, PartitionSpec("dp"))),
    ("SW132", "3 entries for a tensor with 2 dims", ({}, PartitionSpec(None, None, None))),
    ("SW131", "under two spellings", ({"tp": R, TP: V},)),
    ("SW131", "under two spellings", ({"tp": V, TP: S(0)},)),
    ("SW131", "under two spellings", ({"tp": V, Group(TP): I},)),
    ("SW131", "under two spellings", ({TP: V, "tp": I, Group(TP): R},)),
    ("SW131", "as R and as P", ({"tp": R}, {"tp": P})),
    ("SW131", "beside an explicit", ({"tp": S(0)}, PartitionSpec("dp", None))),
    ("SW131", "explicit PartitionSpec", ({"tp": S(0), "dp": S(0)},)),
    ("SW131", "shards", ({"tp": R}, PartitionSpec("tp", None))),
    ("SW131", "shards", ({TP: P}, PartitionSpec("tp", None))),
    ("SW131", "two partition specs", (PartitionSpec("tp", None), PartitionSpec(None, "tp"), {})),
    ("SW901", "not orthogonal", ({"tp": R, MeshAxis.of(2, 1): R},)),
    ("SW901", "used twice", ({}, PartitionSpec("tp", "tp"))),
    ("SW902", "'ep'", ({"ep": R},)),
    ("SW132", "S(2)", ({"tp": S(2)},)),
    ("SW132", "S(-3)", ({"tp": S(-3)},)),
]


@pytest.mark.parametrize(("code", "words", "types"), CONTRADICTIONS)
def test_contradictions_are_refused(code, words, types):
    for _ in "twice, because failures must not be remembered as types":
        with pytest.raises(SpmdTypeError) as raised:
            asserted_type(types, 2)
        assert raised.value.code == code
        assert words in str(raised.value)


WRONG_KINDS = [
    ("two bare types", (R, V)),
    ("is not a type", (3,)),
    ("is not a type", ("tp",)),
    ("is not a type", (S(0),)),
    ("is not a type", ((TP, R),)),
    ("is not a type", (dict,)),
    ("must be R, I, V, P or S(i)", ({"tp": "R"},)),
    ("must be R, I, V, P or S(i)", ({"tp": None},)),
    ("must be R, I, V, P or S(i)", ({"tp": [R]},)),
    ("must be R, I, V, P or S(i)", ({"tp": S},)),
    ("mesh axis", ({3: R},)),
]


def test_what_is_remembered_of_a_dict_is_not_known_of_its_items():
    assert asserted_type(({TP: R},), 2).get(TP) is R
    with pytest.raises(TypeError, match="is not a type"):
        asserted_type(((TP, R),), 2)


@pytest.mark.parametrize(("words", "types"), WRONG_KINDS)
def test_arguments_of_the_wrong_kind_are_type_errors_too(words, types):
    with pytest.raises(TypeError) as raised:
        asserted_type(types, 2)
    assert isinstance(raised.value, SpmdTypeError)
    assert words in str(raised.value)


def test_an_empty_spec_entry_is_a_value_error():
    with pytest.raises(ValueError, match=r"dim 1.*empty tuple") as raised:
        asserted_type(({}, PartitionSpec("dp", ())), 2)
    assert raised.value.code == "SW132"


def test_any_shard_of_a_tensor_without_dims_is_refused():
    with pytest.raises(SpmdTypeError, match=r"S\(0\).*ndim 0") as raised:
        asserted_type(({"tp": S(0)},), 0)
    assert raised.value.code == "SW132"


def test_names_and_bare_types_need_a_mesh():
    with set_current_mesh({}):
        with pytest.raises(SpmdTypeError) as raised:
            asserted_type(({"tp": R},), 2)
        assert raised.value.code == "SW902"
        assert asserted_type((R,), 2) is UNTYPED


def test_a_name_means_what_the_current_mesh_says():
    assert asserted_type(({"tp": R},), 1) is of({TP: R})
    with set_current_mesh({"tp": DP}):
        assert asserted_type(({"tp": R},), 1) is of({DP: R})
        assert asserted_type((R,), 1) is of({DP: R})
    assert asserted_type(({"tp": R},), 1) is of({TP: R})


def test_meshes_without_names_do_not_share_bare_types():
    meanings = []
    for axes in ({DP}, {TP}, {DP, TP}):
        with set_current_mesh(frozenset(axes)):
            meanings.append(asserted_type((V,), 1))
    assert meanings == [of({DP: V}), of({TP: V}), of({DP: V, TP: V})]


def test_process_groups_are_not_kept_alive():
    group = Group(TP)
    gone = weakref.ref(group)
    asserted_type(({group: R},), 1)
    del group
    gc.collect()
    assert gone() is None


def test_the_memo_is_bounded(monkeypatch):
    monkeypatch.setattr(annotating, "_MEMO_LIMIT", 4)
    monkeypatch.setattr(annotating, "_memos", {})
    for ndim in range(1, 20):
        assert asserted_type(({"tp": S(-1)},), ndim).spec == (None,) * (ndim - 1) + (TP,)
    [(_, _, memo)] = annotating._memos.values()
    assert len(memo) <= 4


# Refining, one axis: rows are what is, columns what is asserted.
LOCAL = {
    None: {R: R, I: I, V: V, P: P},
    R: {R: R, I: None, V: None, P: None},
    I: {R: None, I: I, V: None, P: None},
    V: {R: None, I: None, V: V, P: P},
    P: {R: None, I: None, V: None, P: P},
    UNKNOWN: {R: R, I: I, V: V, P: P},
}
CASES = [(place, wanted, result) for place, row in LOCAL.items() for wanted, result in row.items()]


@pytest.mark.parametrize(("place", "wanted", "result"), CASES)
def test_one_axis_is_refined(place, wanted, result):
    current = of({} if place is None else {TP: place})
    if result is None:
        with pytest.raises(SpmdTypeError) as raised:
            refine(current, of({TP: wanted}), gradient_free=False, name="h")
        assert raised.value.code == "SW130"
        assert str(raised.value).startswith(f"h is {place} on axis tp, but it is said to be {wanted}")
    else:
        assert refine(current, of({TP: wanted}), gradient_free=False) is of({TP: result})


@pytest.mark.parametrize(("place", "wanted"), [(p, w) for p, w, result in CASES if result is None])
def test_without_gradients_replicate_may_be_read_as_invariant_and_nothing_else(place, wanted):
    if (place, wanted) == (R, I):
        assert refine(of({TP: R, DP: V}), of({TP: I}), gradient_free=True) is of({TP: I, DP: V})
    else:
        with pytest.raises(SpmdTypeError, match="said to be") as raised:
            refine(of({TP: place}), of({TP: wanted}), gradient_free=True)
        assert raised.value.code == "SW130"


REMEDIES = {
    (I, R): "convert",
    (R, P): "convert",
    (R, V): "reinterpret",
    (I, V): "reinterpret",
    (V, R): "all_gather",
    (V, I): "all_gather",
    (P, R): "all_reduce",
    (P, I): "all_reduce",
    (P, V): "reduce_scatter",
}


@pytest.mark.parametrize(("place", "wanted"), [(p, w) for p, w, result in CASES if result is None])
def test_a_conflict_names_the_call_that_converts(place, wanted):
    with pytest.raises(SpmdTypeError) as raised:
        refine(of({TP: place}), of({TP: wanted}), gradient_free=False, name="h")
    call = REMEDIES.get((place, wanted))
    expert = ", expert_mode=True" if (place, wanted) == (R, V) else ""
    stacks = ", which puts the ranks' values on a new dim 0" if call == "all_gather" else ""
    assert raised.value.help == ((f'{call}(h, "tp", src={place}, dst={wanted}{expert}){stacks}',) if call else ())


@pytest.mark.parametrize(
    ("axis", "written"),
    [
        (MeshAxis.of(2, 16), "MeshAxis.of(2, 16)"),
        (MeshAxis.from_layout((2, 2), (32, 4)), "MeshAxis.from_layout((2, 2), (32, 4))"),
    ],
)
def test_an_axis_without_a_name_is_written_so_that_it_can_be_pasted(axis, written):
    with pytest.raises(SpmdTypeError) as raised:
        refine(of({axis: P}), of({axis: R}), gradient_free=False, name="self.h")
    [call] = raised.value.help
    assert call == f"all_reduce(self.h, {written}, src=P, dst=R)"
    assert eval(written, {"MeshAxis": MeshAxis}) is axis


def spec(*entries):
    axes = [axis for entry in entries if entry for axis in (entry if isinstance(entry, tuple) else (entry,))]
    return of(dict.fromkeys(axes, V), PartitionSpec(*entries))


SPECS = [
    # (what is, what is asserted, the result or words of the error)
    (of({TP: V}), spec(TP, None), spec(TP, None)),
    (spec(TP, None), of({TP: V}), spec(TP, None)),
    (spec(TP, None), spec(TP, None), spec(TP, None)),
    (spec(TP, None), spec(None, DP), spec(TP, DP)),
    (spec(TP, None), spec(TP, DP), spec(TP, DP)),
    (spec(TP, None), spec(DP, None), "dim 0 of h is said to be sharded over dp, but it is sharded over tp"),
    (spec((DP, TP), None), spec(DP, None), "dim 0 of h is said to be sharded over dp, but it is sharded over (dp, tp)"),
    (spec(DP, None), spec((DP, TP), None), "dim 0 of h is said to be sharded over (dp, tp), but it is sharded over dp"),
    (spec((DP, TP), None), spec((TP, DP), None), "sharded over (tp, dp), but it is sharded over (dp, tp)"),
    (spec(TP, None), spec(None, TP), "axis tp is said to shard dim 1 of h, but it shards dim 0"),
]


@pytest.mark.parametrize(("current", "asserted", "result"), SPECS)
def test_specs_are_refined(current, asserted, result):
    if isinstance(result, str):
        with pytest.raises(SpmdTypeError) as raised:
            refine(current, asserted, gradient_free=False, name="h")
        assert raised.value.code == "SW131"
        assert result in str(raised.value)
    else:
        assert refine(current, asserted, gradient_free=False) is result


def test_an_axis_read_as_partial_leaves_the_spec():
    assert refine(spec((DP, TP), None), of({TP: P}), gradient_free=False) is of({DP: V, TP: P}, PartitionSpec(DP, None))
    assert refine(spec(None, TP), of({TP: P}), gradient_free=False) is of({TP: P})


def test_new_axes_must_be_orthogonal_to_the_known_ones():
    with pytest.raises(SpmdTypeError, match="not orthogonal") as raised:
        refine(of({TP: R}), of({MeshAxis.of(2, 2): R}), gradient_free=False)
    assert raised.value.code == "SW901"


@pytest.mark.parametrize("wanted", [R, I, V, P])
@pytest.mark.parametrize(
    "current", [constant_type((DP, TP)), constant_type((DP, TP), zero=True), EMPTY_TYPE], ids=["one", "zero", "empty"]
)
def test_constants_may_be_said_to_be_anything(current, wanted):
    result = refine(current, of({TP: wanted}), gradient_free=False)
    assert result.get(TP) is wanted
    assert result.ground is Ground.ABSENT
    assert result.get(DP) is current.get(DP)


def test_a_claim_about_nothing_leaves_a_constant_a_constant():
    assert refine(constant_type((TP,)), UNTYPED, gradient_free=False) is constant_type((TP,))


def test_a_constant_may_be_claimed_on_another_presentation_of_the_ranks():
    other = MeshAxis.of(8, 2)
    assert refine(constant_type((DP, TP)), of({other: V}), gradient_free=False) is of({other: V})


def test_an_axis_of_an_unknown_value_becomes_known_and_the_others_stay_unknown():
    result = refine(UNKNOWN_TYPE, of({TP: R}), gradient_free=False)
    assert result.get(TP) is R
    assert result.ground is Ground.UNKNOWN


PLACES = st.sampled_from([R, I, V, P])
ENTRIES = st.permutations([DP, CP, TP, None, None]).map(lambda axes: axes[:2])


@st.composite
def types(draw):
    local = draw(st.dictionaries(st.sampled_from([DP, CP, TP]), PLACES))
    entries = draw(st.none() | ENTRIES)
    if entries is None or not any(entries):
        return of(local)
    return of({**local, **{axis: V for axis in entries if axis}}, PartitionSpec(*entries))


@pytest.mark.slow
@given(types(), types(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_refining_is_idempotent_and_keeps_what_was_known(current, asserted, gradient_free):
    try:
        result = refine(current, asserted, gradient_free=gradient_free)
    except SpmdTypeError:
        believed = overrule(current, asserted)
    else:
        assert refine(result, asserted, gradient_free=gradient_free) is result
        believed = result
        for axis, place in zip(current.axes, current.placements, strict=True):
            allowed = {place} | ({P} if place is V else set()) | ({I} if place is R and gradient_free else set())
            assert result.get(axis) in allowed
    for axis, place in asserted.local.items():
        assert believed.get(axis) is place
    for dim, entry in enumerate(asserted.spec or ()):
        assert entry is None or believed.spec[dim] == entry
    for axis in believed.spec.axes_with_partition_spec() if believed.spec else ():
        assert believed.get(axis) is V


@pytest.mark.parametrize("order", list(itertools.permutations([{DP: R}, {CP: V}, {TP: S(1)}])), ids=str)
def test_the_order_of_claims_that_agree_does_not_matter(order):
    current = UNTYPED
    for claim in order:
        current = refine(current, asserted_type((claim,), 2), gradient_free=False)
    assert current is of({DP: R, CP: V, TP: V}, PartitionSpec(None, TP))
