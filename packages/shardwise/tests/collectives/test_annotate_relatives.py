"""The relatives of assert_type: merging claims, copying types, overwriting them, and annotations that are erased."""

import pytest
import torch

from shardwise.collectives.annotate import (
    assert_local_type,
    assert_local_type_like,
    assert_type,
    assert_type_like,
    merge_types,
    mutate_type,
    reinterpret_no_grad,
)
from shardwise.collectives.queries import get_local_type, has_local_type
from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import set_type, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import I, P, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.spmd_type import SpmdType
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, TensorType, constant_type

DP, CP, TP, ONE = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1), MeshAxis.of(1, 1)
MESH = {"dp": DP, "cp": CP, "tp": TP, "one": ONE}
of = TensorType.of


@pytest.fixture(autouse=True)
def _mesh():
    with set_current_mesh(MESH):
        yield


@pytest.fixture
def collected():
    """The findings of a check that collects them."""

    class Check:
        strict = local = collecting = True
        paused = False

        def report(self, error):
            findings.append(error.finding)

    findings = []
    before = session.enter(Check())
    yield findings
    session.enter(before)


def tensor(type=UNTYPED, *, requires_grad=False):
    x = torch.zeros(4, 8, requires_grad=requires_grad)
    if type is not UNTYPED:
        set_type(x, type)
    return x


# merge_types


def test_merging_keeps_what_was_written():
    merged = merge_types({"tp": S(-1)}, None, {"dp": R}, SpmdType({"cp": P}))
    assert merged == SpmdType({"tp": S(-1), "dp": R, "cp": P})


def test_a_bare_type_is_merged_as_the_axes_it_fills():
    assert merge_types(R, {"tp": V}, PartitionSpec("dp", None)) == SpmdType({"tp": V, CP: R}, PartitionSpec("dp", None))


def test_specs_that_are_equal_when_normalised_merge():
    assert merge_types(PartitionSpec("dp"), PartitionSpec((DP, "one"))).partition_spec == PartitionSpec("dp")


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (({"tp": R}, {"tp": V}), "'tp' is given as R and as V"),
        (({"tp": S(0)}, {"tp": V}), "'tp' is given as S(0) and as V"),
        ((PartitionSpec("dp"), PartitionSpec("tp")), "two partition specs"),
        (({"tp": S(0)}, PartitionSpec(None, "dp")), "beside an explicit"),
    ],
)
def test_claims_that_contradict_do_not_merge(types, words):
    with pytest.raises(SpmdTypeError) as raised:
        merge_types(*types)
    assert raised.value.code == "SW131"
    assert words in str(raised.value)


def test_two_spellings_of_an_axis_merge_and_are_compared_by_assert_type():
    merged = merge_types({"tp": R}, {TP: V})
    with pytest.raises(SpmdTypeError, match="under two spellings"):
        assert_type(tensor(), merged)


def test_a_second_bare_type_is_a_type_error():
    with pytest.raises(TypeError, match="two bare types"):
        merge_types(R, R)


# assert_type_like, assert_local_type_like

LIKE = [
    (assert_type_like, None, of({TP: V, DP: R}, PartitionSpec(None, TP))),
    (assert_type_like, {"dp": P}, of({TP: V, DP: P}, PartitionSpec(None, TP))),
    (assert_type_like, {"cp": I}, of({TP: V, DP: R, CP: I}, PartitionSpec(None, TP))),
    (assert_type_like, {"tp": V}, of({TP: V, DP: R}, PartitionSpec(None, TP))),
    (assert_local_type_like, None, of({TP: V, DP: R})),
    (assert_local_type_like, {TP: R}, of({TP: R, DP: R})),
    (assert_local_type_like, {"dp": S(0)}, of({TP: V, DP: V}, PartitionSpec(DP, None))),
]


@pytest.mark.parametrize(("like", "overrides", "result"), LIKE)
def test_a_type_is_copied_with_overrides(like, overrides, result):
    x, source = tensor(), tensor(of({TP: V, DP: R}, PartitionSpec(None, TP)))
    assert like(x, source, overrides) is None
    assert type_of(x) is result


def test_an_override_that_takes_a_sharded_axis_away_contradicts_the_copied_spec():
    source = tensor(of({TP: V}, PartitionSpec(None, TP)))
    with pytest.raises(SpmdTypeError, match="shards") as raised:
        assert_type_like(tensor(), source, {"tp": R})
    assert raised.value.code == "SW131"
    assert raised.value.finding.op == "assert_type_like"


def test_what_is_like_an_unknown_value_is_unknown():
    x = tensor()
    assert_type_like(x, tensor(UNKNOWN_TYPE))
    assert type_of(x) is UNKNOWN_TYPE


# mutate_type

BEFORE = of({DP: R, TP: R, CP: I})
MUTATIONS = [
    (BEFORE, ("tp",), R, I, of({DP: R, TP: I, CP: I})),
    (BEFORE, (TP,), R, P, of({DP: R, TP: P, CP: I})),
    (BEFORE, ("one",), V, P, BEFORE),
    (of({DP: R, TP: R}), (), R, I, of({DP: I, TP: I})),
    (BEFORE, (), R, {"tp": I, "dp": P}, of({DP: P, TP: I, CP: I})),
    (BEFORE, (), {"tp": R, "cp": I}, P, of({DP: R, TP: P, CP: P})),
    (BEFORE, (), {"tp": R, "cp": I}, {"tp": V, "cp": R}, of({DP: R, TP: V, CP: R})),
    # what shards no more leaves the spec
    (of({TP: V}, PartitionSpec(TP, None)), ("tp",), S(0), R, of({TP: R})),
    (of({TP: V}, PartitionSpec(TP, None)), ("tp",), V, P, of({TP: P})),
    (of({TP: V, DP: V}, PartitionSpec((DP, TP), None)), ("tp",), V, R, of({TP: R, DP: V}, PartitionSpec(DP, None))),
    (of({TP: V}, PartitionSpec(TP, None)), ("tp",), S(0), V, of({TP: V})),
    (of({TP: V}, PartitionSpec(TP, None)), ("tp",), S(0), S(-1), of({TP: V}, PartitionSpec(None, TP))),
    (of({TP: V}, PartitionSpec(TP, None)), ("tp",), S(-2), S(0), of({TP: V}, PartitionSpec(TP, None))),
    (of({TP: V}), ("tp",), V, S(0), of({TP: V}, PartitionSpec(TP, None))),
    # constants read as what the others need
    (constant_type((TP,)), ("tp",), I, P, of({TP: P})),
    (constant_type((TP,), zero=True), ("tp",), P, V, of({TP: V})),
]


@pytest.mark.parametrize(("before", "axis", "src", "dst", "after"), MUTATIONS)
def test_a_type_is_overwritten(before, axis, src, dst, after):
    x = tensor(before, requires_grad=True)
    assert mutate_type(x, *axis, src=src, dst=dst) is x
    assert type_of(x) is after


REFUSED = [
    ("SW130", "src=V was expected on axis tp, but the tensor is R", ("tp",), V, P),
    ("SW130", "src=R was expected on axis cp, but the tensor is I", (), R, I),
    ("SW130", "src=P was expected", (), {"dp": R, "tp": P}, I),
    ("SW132", "not both", ("tp",), {"tp": R}, I),
    ("SW132", "same axes", (), {"tp": R, "dp": R}, {"tp": I}),
    ("SW132", "same axes", (), {"tp": R}, {TP: I}),
    ("SW103", "no type on axis", (MeshAxis.of(2, 16),), R, I),
    ("SW902", "'ep'", ("ep",), R, I),
]


@pytest.mark.parametrize(("code", "words", "axis", "src", "dst"), REFUSED)
def test_overwriting_needs_the_type_that_is_there(code, words, axis, src, dst):
    x = tensor(BEFORE)
    with pytest.raises(SpmdTypeError) as raised:
        mutate_type(x, *axis, src=src, dst=dst)
    assert raised.value.code == code
    assert words in str(raised.value)
    assert raised.value.finding.op == "mutate_type"
    assert type_of(x) is BEFORE


@pytest.mark.parametrize(("src", "dst"), [("R", I), (R, None), ({"tp": 1}, I)])
def test_overwriting_takes_types(src, dst):
    with pytest.raises(TypeError, match="must be R, I, V, P or S"):
        mutate_type(tensor(BEFORE), None if isinstance(src, dict) else "tp", src=src, dst=dst)


def test_a_shard_of_another_dim_is_not_what_was_expected():
    x = tensor(of({TP: V}, PartitionSpec(TP, None)))
    with pytest.raises(SpmdTypeError, match=r"src=S\(1\) was expected on axis tp, but the tensor is S\(0\)") as raised:
        mutate_type(x, "tp", src=S(1), dst=R)
    assert raised.value.code == "SW131"


def test_overwriting_every_axis_of_an_untyped_tensor_makes_it_typed():
    x = mutate_type(tensor(), src=R, dst=I)
    assert has_local_type(x)
    assert get_local_type(x) == {}


def test_while_collecting_a_refused_overwrite_is_reported_and_the_program_goes_on(collected):
    x = mutate_type(tensor(BEFORE), "tp", src=V, dst=P)
    assert [finding.code for finding in collected] == ["SW130"]
    assert type_of(x) is of({DP: R, TP: P, CP: I})


@pytest.mark.parametrize("claim", [{"axis": "tp", "dst": P}, {"axis": "dp", "dst": I}, {"axis": "cp", "dst": R}])
def test_while_collecting_a_refused_swap_is_reported_and_changes_nothing(collected, claim):
    x = tensor(of({TP: R, CP: V}))
    reinterpret_no_grad(x, **claim)
    assert [finding.op for finding in collected] == ["reinterpret_no_grad"]
    assert type_of(x) is of({TP: R, CP: V})


# reinterpret_no_grad


@pytest.mark.parametrize("dst", [R, I])
@pytest.mark.parametrize("src", [R, I])
def test_replicate_and_invariant_are_swapped_without_gradient(src, dst):
    x = tensor(of({TP: src, DP: V}))
    assert reinterpret_no_grad(x, "tp", dst=dst) is x
    assert type_of(x) is of({TP: dst, DP: V})


def test_swapping_on_an_axis_of_one_rank_does_nothing():
    x = tensor(of({TP: V}))
    assert type_of(reinterpret_no_grad(x, "one", dst=R)) is of({TP: V})


@pytest.mark.parametrize("dst", [V, P, S(0), "R", None])
def test_swapping_is_between_replicate_and_invariant(dst):
    with pytest.raises(ValueError, match="reads R as I or I as R") as raised:
        reinterpret_no_grad(tensor(of({TP: R})), "tp", dst=dst)
    assert isinstance(raised.value, SpmdValueError)
    assert raised.value.code == "SW202"


def test_swapping_needs_a_tensor_without_gradient():
    x = tensor(of({TP: R}), requires_grad=True)
    with pytest.raises(ValueError, match="requires grad"):
        reinterpret_no_grad(x, "tp", dst=I)
    assert type_of(x) is of({TP: R})


@pytest.mark.parametrize(("before", "code"), [(of({TP: V}), "SW130"), (of({TP: P}), "SW130"), (of({DP: R}), "SW103")])
def test_swapping_needs_replicate_or_invariant(before, code):
    with pytest.raises(SpmdTypeError) as raised:
        reinterpret_no_grad(tensor(before), "tp", dst=R)
    assert raised.value.code == code


def test_where_nothing_is_checked_a_tensor_without_a_type_is_left_alone():
    """What operators make has no type then, and a program that says what it is there is right."""
    x = tensor()
    assert mutate_type(x, "tp", src=V, dst=P) is x
    assert mutate_type(x, src={"dp": R, "tp": V}, dst=R) is x
    assert reinterpret_no_grad(x, "tp", dst=R) is x
    assert not has_local_type(x)
    with pytest.raises(SpmdTypeError, match="not both"):
        mutate_type(x, "tp", src={"tp": R}, dst=I)


# erasure


@pytest.fixture
def _erased(monkeypatch):
    monkeypatch.setattr(session, "erased", True)


@pytest.mark.usefixtures("_erased")
def test_erased_annotations_write_nothing_and_look_at_nothing():
    x, typed = tensor(), tensor(of({TP: P}))
    assert assert_type(x, {"no such axis": R}) is x
    assert assert_type(typed, {"tp": R}) is typed
    assert assert_type([x], "nonsense") == [x]
    assert mutate_type(x, "tp", src=V, dst=R) is x
    assert reinterpret_no_grad(x, "tp", dst=V) is x
    assert assert_type_like(x, typed) is None
    assert assert_local_type_like(x, typed) is None
    assert assert_local_type(x, {"tp": R}) is x
    assert not has_local_type(x)
    assert x.__dict__ == {}
    assert type_of(typed) is of({TP: P})


def test_a_like_tensor_has_shards_of_the_same_lengths():
    source = assert_type(tensor(), {"tp": S(0)}, even=False)
    x = tensor()
    assert_type_like(x, source)
    assert type_of(x) is type_of(source)
