"""assert_type and its relatives on objects: what is set, what is refused, and that a refusal changes nothing."""

import threading
from collections import namedtuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

from shardwise.collectives.annotate import assert_local_type, assert_type, mutate_type
from shardwise.collectives.queries import get_local_type, get_partition_spec, has_local_type, typeof
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError
from shardwise.diagnostics.finding import Finding
from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import set_type, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import UNKNOWN, I, P, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import EMPTY_TYPE, UNKNOWN_TYPE, UNTYPED, Ground, TensorType, constant_type

DP, CP, TP, ONE = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1), MeshAxis.of(1, 1)
MESH = {"dp": DP, "cp": CP, "tp": TP, "one": ONE}
of = TensorType.of


@pytest.fixture(autouse=True)
def _mesh():
    with set_current_mesh(MESH):
        yield


class Check:
    """A running check, as far as annotations can tell."""

    strict = local = True
    paused = False

    def __init__(self, collecting):
        self.collecting = collecting
        self.findings = []
        self.trusted = []

    def report(self, error):
        if not self.collecting:
            raise error
        self.findings.append(error.finding)

    def trust(self, what, place):
        self.trusted.append((what, place.line))


@pytest.fixture
def collecting():
    check = Check(collecting=True)
    before = session.enter(check)
    yield check
    session.enter(before)


def tensor(type=UNTYPED, *, requires_grad=False):
    x = torch.zeros(4, 8, requires_grad=requires_grad)
    if type is not UNTYPED:
        set_type(x, type)
    return x


class Stand:
    """Something that is no tensor but knows how many dims it has."""

    ndim = 2


def fake_tensor():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(4, 8)


OBJECTS = {
    "tensor": tensor,
    "parameter": lambda: nn.Parameter(torch.zeros(4, 8)),
    "meta": lambda: torch.zeros(4, 8, device="meta"),
    "fake": fake_tensor,
    "stand-in": Stand,
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_anything_with_dims_can_be_annotated_and_is_returned(make):
    x = make()
    assert assert_type(x, {"dp": R, "tp": S(1)}) is x
    assert get_local_type(x) == {DP: R, TP: V}
    assert get_partition_spec(x) == PartitionSpec(None, TP)
    assert assert_type(x, {"cp": V}) is x
    assert get_local_type(x) == {DP: R, CP: V, TP: V}


def test_the_spec_may_be_given_by_name():
    x = assert_type(tensor(), {"tp": R}, partition_spec=PartitionSpec("dp", None))
    assert type_of(x) is of({TP: R, DP: V}, PartitionSpec(DP, None))


def test_a_typed_scalar_takes_local_types_only():
    number = Scalar(2.0, {TP: R})
    assert assert_type(number, {"dp": V}) is number
    assert number.local_type == {DP: V, TP: R}
    with pytest.raises(SpmdTypeError) as raised:
        assert_type(number, {"cp": S(0)})
    assert raised.value.code == "SW132"


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    "container",
    [
        [tensor(), tensor()],
        (tensor(), [tensor(), (tensor(),)]),
        Pair(tensor(), tensor()),
        torch.return_types.max([tensor(), tensor()]),
        [],
    ],
    ids=["list", "nested", "named tuple", "torch result", "empty"],
)
def test_containers_are_annotated_element_by_element(container):
    def leaves(x):
        return [leaf for item in x for leaf in leaves(item)] if isinstance(x, (list, tuple)) else [x]

    assert assert_type(container, {"tp": R}) is container
    assert all(type_of(leaf) is of({TP: R}) for leaf in leaves(container))


def test_a_container_is_annotated_all_or_nothing():
    good, bad = tensor(), tensor(of({TP: P}))
    with pytest.raises(SpmdTypeError, match="bad is P on axis tp"):
        assert_type([good, bad], {"tp": R})
    assert not has_local_type(good)
    assert type_of(bad) is of({TP: P})


def test_one_tensor_twice_in_a_container_is_annotated_once():
    x = tensor()
    assert_type([x, x], {"tp": S(0)})
    assert type_of(x) is of({TP: V}, PartitionSpec(TP, None))


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((), {}),
        ((), {"partition_spec": PartitionSpec("tp", None)}),
        ((PartitionSpec("tp", None),), {}),
        ((PartitionSpec("tp", None),), {"partition_spec": PartitionSpec("tp", None)}),
    ],
)
def test_a_type_argument_is_required(arguments, keywords):
    with pytest.raises(TypeError, match="requires at least one type argument") as raised:
        assert_type(tensor(), *arguments, **keywords)
    assert raised.value.code == "SW132"


class Full:
    """Knows how many dims it has and takes no attribute."""

    __slots__ = ()
    ndim = 1


@pytest.mark.parametrize(
    "thing",
    [3.0, "x", None, nn.Linear(1, 1), {"a": 1}, Full(), memoryview(b"")],
    ids=["number", "text", "none", "module", "dict", "no room", "memory"],
)
def test_what_has_no_dims_is_refused(thing):
    with pytest.raises(SpmdArgumentError, match="only tensors and objects with ndim") as raised:
        assert_type(thing, {"tp": R})
    assert type(thing).__name__ in str(raised.value)


def test_a_dtensor_is_refused():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    from shardwise.interop.torch_compat import fake_world

    with fake_world(0, 4):
        x = distribute_tensor(torch.zeros(4), init_device_mesh("cpu", (4,)), [Replicate()])
        with pytest.raises(TypeError, match="DTensor") as raised:
            assert_type(x, {TP: R})
    assert raised.value.help == ("x.to_local()",)
    assert isinstance(raised.value, SpmdTypeError)


@pytest.mark.parametrize("gradient", [True, False])
def test_replicate_is_read_as_invariant_only_without_gradient(gradient):
    x = tensor(of({TP: R, DP: V}), requires_grad=gradient)
    if gradient:
        with pytest.raises(SpmdTypeError, match="x is R on axis tp, but it is said to be I"):
            assert_type(x, {"tp": I})
        assert type_of(x) is of({TP: R, DP: V})
    else:
        assert type_of(assert_type(x, {"tp": I})) is of({TP: I, DP: V})


ATOMIC = {
    "a transmute before a conflict": (of({TP: V, DP: R}), ({"tp": P, "dp": I},)),
    "new axes before a spec conflict": (of({TP: V}, PartitionSpec(TP, None)), ({"dp": S(0), "cp": R},)),
    "a conflict in the last axis": (of({TP: R}), ({"dp": R, "cp": V, "tp": P},)),
    "a spec of the wrong length": (of({TP: R}), ({"dp": R}, PartitionSpec("cp"))),
    "axes that overlap": (of({TP: R}), ({"dp": R, MeshAxis.of(2, 2): R},)),
    "an unknown name": (of({TP: R}), ({"dp": R, "ep": R},)),
}


@pytest.mark.parametrize(("before", "claim"), ATOMIC.values(), ids=ATOMIC)
def test_a_refused_claim_changes_nothing(before, claim):
    x = tensor(before, requires_grad=True)
    tag = tag_of(x)
    with pytest.raises(SpmdTypeError):
        assert_type(x, *claim)
    assert tag_of(x) is tag
    assert type_of(x) is before


CLAIMS = st.dictionaries(
    st.sampled_from(["dp", "cp", "tp", DP, TP]), st.sampled_from([R, I, V, P, S(0), S(1), S(-1), S(2)]), max_size=3
)


@given(st.lists(CLAIMS, max_size=6), st.booleans())
@settings(max_examples=200, deadline=None)
def test_claims_are_atomic_and_idempotent(claims, requires_grad):
    with set_current_mesh(MESH):
        x = tensor(requires_grad=requires_grad)
        for claim in claims:
            typed, before = has_local_type(x), type_of(x)
            try:
                assert_type(x, claim)
            except SpmdTypeError:
                assert (has_local_type(x), type_of(x)) == (typed, before)
            else:
                after = type_of(x)
                assert has_local_type(x)
                assert type_of(assert_type(x, claim)) is after
                meant = {MESH.get(name, name): place for name, place in claim.items()}
                for axis, place in meant.items():
                    assert after.get(axis) is (V if isinstance(place, S) else place)


@pytest.mark.parametrize("before", [constant_type((DP, CP, TP)), constant_type((DP, CP, TP), zero=True), EMPTY_TYPE])
@pytest.mark.parametrize("wanted", [R, I, V, P, S(1)])
def test_constants_and_empty_memory_take_any_type(before, wanted):
    x = tensor(before, requires_grad=True)
    assert_type(x, {"tp": wanted})
    assert get_local_type(x)[TP] is (V if wanted == S(1) else wanted)
    assert type_of(x).ground is Ground.ABSENT


def test_an_empty_claim_makes_a_tensor_typed():
    x = assert_type(tensor(), {})
    assert has_local_type(x)
    assert get_local_type(x) == {}


def test_an_unknown_axis_becomes_known():
    x = tensor(of({TP: UNKNOWN, DP: R}))
    assert_type(x, {"tp": V})
    assert get_local_type(x) == {DP: R, TP: V}


def test_a_conflict_is_a_finding_that_names_the_operand_and_where_its_type_is_from():
    hidden = tensor()
    assert_type(hidden, {"dp": R, "tp": V})
    with pytest.raises(SpmdTypeError) as raised:
        assert_type(hidden, {"tp": R})
    finding = raised.value.finding
    assert isinstance(finding, Finding)
    assert (finding.code, finding.op) == ("SW130", "assert_type")
    assert finding.message == "hidden is V on axis tp, but it is said to be R"
    assert finding.help == (
        'all_gather(hidden, "tp", src=V, dst=R), which puts the ranks\' values on a new dim 0',
        '"tp": V in the annotation, if that is what is meant',
    )
    assert finding.location.file == __file__
    [operand] = finding.operands
    assert (operand.name, operand.type) == ("hidden", "f32[4, 8] {dp: R, tp: V}")
    [hop] = operand.origin
    assert hop.text == "asserted here"
    assert hop.location.line == finding.location.line - 2


def test_every_axis_remembers_where_it_was_asserted():
    x = tensor()
    first = assert_type(x, {"dp": R, "tp": V})
    second = assert_type(x, {"tp": P, "cp": I})
    assert first is second is x
    tag = tag_of(x)
    lines = {axis: tag.origin_of(axis).site.location().line for axis in (DP, TP, CP)}
    assert lines[TP] == lines[CP] == lines[DP] + 1
    assert tag.origin_of(TP).text == "read as partial here"
    assert tag.origin_of(TP).parent is not None
    assert tag.origin_of(TP).parent.site.location().line == lines[DP]


def test_printed_types_are_short_letters():
    with pytest.raises(SpmdTypeError) as raised:
        assert_type(tensor(of({TP: P})), {"tp": R})
    assert "PerMeshAxis" not in str(raised.value)
    assert "is P on axis tp, but it is said to be R" in str(raised.value)


def test_while_collecting_a_conflict_is_one_finding_and_the_claim_is_believed(collecting):
    x = tensor(of({TP: P, DP: R}))
    assert assert_type(x, {"tp": R}) is x
    assert_type(x, {"tp": R})
    assert [finding.code for finding in collecting.findings] == ["SW130"]
    assert type_of(x) is of({TP: R, DP: R})


def test_while_collecting_a_spec_conflict_is_one_finding_and_the_claim_is_believed(collecting):
    x = tensor(of({TP: V}, PartitionSpec(TP, None)))
    assert_type(x, {"tp": S(1)})
    assert_type(x, {"tp": S(1)})
    assert [finding.code for finding in collecting.findings] == ["SW131"]
    assert type_of(x) is of({TP: V}, PartitionSpec(None, TP))


def test_while_collecting_a_claim_that_says_nothing_leaves_the_unknown_type(collecting):
    x = assert_type(tensor(), {"ep": R})
    y = assert_type(tensor(of({TP: R})), {"tp": S(7)})
    assert [finding.code for finding in collecting.findings] == ["SW902", "SW132"]
    assert type_of(x) is UNKNOWN_TYPE
    assert type_of(y) is of({TP: R})


def test_while_collecting_every_element_is_believed(collecting):
    good, bad = tensor(), tensor(of({TP: P}))
    assert_type([good, bad], {"tp": R})
    assert [finding.message for finding in collecting.findings] == ["bad is P on axis tp, but it is said to be R"]
    assert type_of(good) is type_of(bad) is of({TP: R})


def test_the_first_claim_about_a_tensor_is_trusted_and_later_ones_are_checked(collecting):
    x = tensor()
    assert_type(x, {"tp": R})
    assert_type(x, {"dp": R})
    [(what, line)] = collecting.trusted
    assert what == "assert_type"
    assert line == test_the_first_claim_about_a_tensor_is_trusted_and_later_ones_are_checked.__code__.co_firstlineno + 2


def test_annotating_calls_no_torch_function(collecting):
    class Refuse(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was called")

    x, y = tensor(), tensor(of({TP: R}), requires_grad=True)
    with Refuse():
        assert_type([x, y], {"tp": R, "dp": S(0)})
        mutate_type(x, "tp", src=R, dst=I)
        typeof(x)
    assert collecting.findings == []


def test_threads_have_their_own_mesh():
    seen = []

    def annotate():
        with set_current_mesh({"tp": DP}):
            seen.append(get_local_type(assert_type(tensor(), {"tp": R})))

    thread = threading.Thread(target=annotate)
    thread.start()
    thread.join()
    assert seen == [{DP: R}]
    assert get_local_type(assert_type(tensor(), {"tp": R})) == {TP: R}


def test_assert_local_type_is_an_old_name():
    x = tensor()
    with pytest.warns(DeprecationWarning, match="assert_type"):
        assert assert_local_type(x, {"tp": R}) is x
    assert type_of(x) is of({TP: R})


def test_the_lengths_of_shards_can_be_said():
    x = assert_type(torch.randn(5, 2), {"dp": S(0), "tp": S(1)})
    assert type_of(assert_type(x, {"tp": S(1)})).uneven == set()
    assert type_of(assert_type(x, {"tp": S(1)}, even=False)).uneven == {TP}
    assert type_of(assert_type(x, {"dp": S(0), "tp": S(1)})).uneven == {TP}, "saying nothing changes nothing"
    assert str(typeof(x)) == "f32[5@dp, 2@~tp]"
    assert type_of(assert_type(x, {"tp": S(1)}, even=True)).uneven == set()


def test_that_shards_are_even_after_all_is_trusted(collecting):
    x = assert_type(torch.randn(5, 2), {"tp": S(0)}, even=False)
    collecting.trusted.clear()
    assert_type(x, {"tp": S(0)}, even=True)
    assert [what for what, _ in collecting.trusted] == ["assert_type"]


@pytest.mark.parametrize(("types", "even"), [({"tp": R}, True), ({"tp": V}, False), ({"tp": S(0)}, 1)])
def test_even_speaks_of_shards_and_is_a_truth_value(types, even):
    x = torch.randn(4, 2)
    with pytest.raises(SpmdTypeError, match="even") as caught:
        assert_type(x, types, even=even)
    assert caught.value.code == "SW132"
    assert not has_local_type(x)
