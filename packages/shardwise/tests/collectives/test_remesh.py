"""reinterpret_mesh on tensors: what it returns, refuses and remembers. The algorithm has its tests in mesh."""

import pytest
import torch

from shardwise.collectives.annotate import assert_type
from shardwise.collectives.queries import has_local_type, typeof
from shardwise.collectives.remesh import reinterpret_mesh
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import P, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

DP, CP, TP = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1)
BOTH = MeshAxis.of(4, 4)
EDP, EP = MeshAxis.of(4, 4), MeshAxis.of(4, 1)
of = TensorType.of


def annotated(*types):
    with set_current_mesh({"dp": DP, "cp": CP, "tp": TP}):
        return assert_type(torch.arange(16.0).reshape(4, 4), *types)


DESTINATIONS = {
    "a dict of types": {BOTH: R, TP: V},
    "a set of axes": frozenset({BOTH, TP}),
    "a sequence of axes": [BOTH, TP],
}


@pytest.mark.parametrize("destination", DESTINATIONS.values(), ids=DESTINATIONS)
def test_the_result_is_an_alias_with_the_new_type(destination):
    x = annotated({"dp": R, "cp": R, "tp": S(1)})
    y = reinterpret_mesh(x, destination)
    assert y is not x
    assert y.data_ptr() == x.data_ptr()
    assert type_of(y) is of({BOTH: R, TP: V}, PartitionSpec(None, TP))
    assert type_of(x) is of({DP: R, CP: R, TP: V}, PartitionSpec(None, TP))
    origin = tag_of(y).origin_of(BOTH)
    assert origin.text == "said on another mesh here"
    assert origin.parent.text == "asserted here"


def test_in_place_the_tensor_itself_is_retagged():
    x = annotated({"dp": P, "cp": P})
    assert reinterpret_mesh(x, {BOTH: P}, inplace=True) is x
    assert type_of(x) is of({BOTH: P})


def test_the_alias_is_differentiable():
    x = annotated({"dp": R, "cp": R}).requires_grad_()
    reinterpret_mesh(x, frozenset({BOTH})).sum().backward()
    assert x.grad.tolist() == [[1.0] * 4] * 4


def test_shards_move_over_whole_groups():
    x = annotated({}, PartitionSpec(("dp", "cp"), "tp"))
    assert type_of(reinterpret_mesh(x, frozenset({EDP, EP}))) is of({EDP: V, EP: V}, PartitionSpec(EDP, EP))


def test_types_that_differ_within_a_group_are_refused_with_tensor_and_request_shown():
    x = annotated({"dp": R, "cp": V})
    with pytest.raises(SpmdTypeError, match="would have to be flattened") as raised:
        reinterpret_mesh(x, {BOTH: V})
    assert raised.value.code == "SW133"
    assert raised.value.finding.op == "reinterpret_mesh"
    assert raised.value.finding.operands[0].name == "x"
    assert "In reinterpret_mesh(" in raised.value.context
    assert str(typeof(x)) in raised.value.context
    assert type_of(x) is of({DP: R, CP: V})


def test_a_shard_is_no_local_type():
    with pytest.raises(TypeError, match="must be R, I, V or P"):
        reinterpret_mesh(annotated({"dp": V, "cp": V}), {BOTH: S(0)})


@pytest.fixture
def check():
    class Check:
        strict, local, paused, collecting = True, True, False, True

        def report(self, error):
            self.findings.append(error.finding)

        def trust(self, what, place):
            """Annotated during the check; not what is tested here."""

    check = Check()
    check.findings = []
    before = session.enter(check)
    yield check
    session.enter(before)


@pytest.mark.parametrize("inplace", [False, True])
def test_where_nothing_is_checked_a_tensor_without_a_type_passes(inplace):
    x = torch.ones(2, requires_grad=True) * 2
    for destination in ({BOTH: R}, frozenset({BOTH})):
        y = reinterpret_mesh(x, destination, inplace=inplace)
        assert (y is x) is inplace
        assert y.data_ptr() == x.data_ptr()
        assert not has_local_type(y)
        assert y.requires_grad
    with pytest.raises(TypeError, match="must be R, I, V or P"):
        reinterpret_mesh(x, {BOTH: S(0)})


def test_in_a_check_a_tensor_without_a_type_is_refused(check):
    reinterpret_mesh(torch.zeros(2), {BOTH: R})
    assert [(one.code, one.op) for one in check.findings] == [("SW102", "reinterpret_mesh")]
    assert "needs a tensor with a type" in check.findings[0].message


def test_while_collecting_a_refusal_is_one_finding_and_the_result_unknown(check):
    x = annotated({"dp": R, "cp": V})
    y = reinterpret_mesh(x, {BOTH: V})
    assert type_of(y) is UNKNOWN_TYPE
    assert [finding.code for finding in check.findings] == ["SW133"]


def test_shards_that_cannot_be_said_are_dropped_locally_and_refused_globally(check):
    x = annotated({"dp": S(0), "cp": V})
    assert type_of(reinterpret_mesh(x, frozenset({BOTH}))) is of({BOTH: V})
    check.local = False
    reinterpret_mesh(x, frozenset({BOTH}))
    assert [finding.code for finding in check.findings] == ["SW133"]


def test_local_axes_keep_local_semantics_in_global_mode(check):
    check.local = False
    x = annotated({"dp": S(0), "cp": V})
    with set_current_mesh({"both": BOTH, "tp": TP}, local_axes=("both",)):
        assert type_of(reinterpret_mesh(x, frozenset({BOTH}))) is of({BOTH: V})
    assert check.findings == []


def test_erased_it_is_the_tensor_itself(monkeypatch):
    x = annotated({"dp": R})
    monkeypatch.setattr(session, "erased", True)
    assert reinterpret_mesh(x, {BOTH: V}) is x
    assert has_local_type(x)
