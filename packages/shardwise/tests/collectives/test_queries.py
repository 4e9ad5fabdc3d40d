"""Questions about a tensor's type: what they answer, and that they change nothing."""

import pytest
import torch

from shardwise.checker.scopes.activation import checking
from shardwise.collectives.annotate import assert_type
from shardwise.collectives.queries import (
    get_axis_local_type,
    get_local_type,
    get_partition_spec,
    has_local_type,
    maybe_get_axis_local_type,
    reveal_type,
    typeof,
)
from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import set_type
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.notation import TypedShape
from shardwise.types.placement import UNKNOWN, I, P, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, TensorType

DP, TP, ONE = MeshAxis.of(2, 4), MeshAxis.of(4, 1), MeshAxis.of(1, 1)


@pytest.fixture(autouse=True)
def _mesh():
    with set_current_mesh({"dp": DP, "tp": TP, "one": ONE}):
        yield


def annotated():
    return assert_type(torch.zeros(8, 16), {"dp": R, "tp": S(1)})


class Bare:
    """Any object at all."""


@pytest.mark.parametrize(
    ("x", "local", "typed"),
    [
        (Scalar(1, {TP: P}), {TP: P}, True),
        (torch.zeros(2), {}, False),
        (Bare(), {}, False),
        (3, {}, False),
        (None, {}, False),
    ],
    ids=["scalar", "tensor", "object", "number", "none"],
)
def test_anything_can_be_asked(x, local, typed):
    assert get_local_type(x) == local
    assert has_local_type(x) is typed
    assert get_partition_spec(x) is None


def test_a_local_type_is_a_value():
    x = annotated()
    local = get_local_type(x)
    assert local == {DP: R, TP: V}
    with pytest.raises(TypeError):
        local[DP] = I
    assert_type(x, {"tp": P})
    assert local == {DP: R, TP: V}
    assert get_local_type(x) == {DP: R, TP: P}


def test_unknown_axes_are_not_in_the_local_type():
    x = torch.zeros(2)
    set_type(x, TensorType.of({TP: UNKNOWN, DP: R}))
    assert get_local_type(x) == {DP: R}
    assert maybe_get_axis_local_type(x, "tp") is None


def test_an_empty_type_is_a_type():
    assert has_local_type(assert_type(torch.zeros(2), {}))


def test_one_axis_can_be_asked_under_any_spelling():
    x = annotated()
    assert get_axis_local_type(x, "dp") is get_axis_local_type(x, DP) is maybe_get_axis_local_type(x, "dp") is R
    assert get_axis_local_type(Scalar(1, {TP: P}), "tp") is P


@pytest.mark.parametrize("x", [torch.zeros(2), Scalar(1, {DP: P})], ids=["untyped", "another axis"])
def test_an_axis_without_a_type_is_a_value_error_that_lists_the_axes(x):
    assert maybe_get_axis_local_type(x, "tp") is None
    with pytest.raises(ValueError, match=r"no type on axis tp; its axes are: (none|dp)") as raised:
        get_axis_local_type(x, "tp")
    assert isinstance(raised.value, SpmdTypeError)
    assert raised.value.code == "SW103"
    assert raised.value.finding.location.file == __file__


@pytest.mark.parametrize("ask", [get_axis_local_type, maybe_get_axis_local_type])
def test_an_unknown_name_is_refused(ask):
    with pytest.raises(SpmdTypeError, match="'ep'") as raised:
        ask(annotated(), "ep")
    assert raised.value.code == "SW902"


def test_a_partition_spec_is_normalised():
    x = assert_type(torch.zeros(8, 16), {}, PartitionSpec(("dp", "one"), None))
    assert get_partition_spec(x) == PartitionSpec(DP, None)
    assert get_partition_spec(annotated()) == PartitionSpec(None, TP)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (annotated, "f32[8, 16@tp] {dp: R}"),
        (lambda: torch.zeros(2, dtype=torch.bfloat16), "bf16[2]"),
        (lambda: assert_type(torch.zeros(4, 4), {}, PartitionSpec(("dp", "tp"), None)), "f32[4@(dp,tp), 4]"),
        (lambda: torch.nn.Parameter(torch.zeros(())), "f32[]"),
        (lambda: Scalar(2, {TP: V}), "Scalar[] {tp: V}"),
    ],
)
def test_a_typed_shape_reads(x, text):
    assert str(typeof(x())) == text


def test_a_typed_shape_is_a_value():
    assert typeof(annotated()) == TypedShape("float32", (8, 16), TensorType.of({DP: R, TP: V}, PartitionSpec(None, TP)))
    assert typeof(torch.zeros(2)).type is UNTYPED


def test_revealing_prints_place_name_and_type(capsys):
    hidden = annotated()
    assert reveal_type(hidden) is hidden
    line = test_revealing_prints_place_name_and_type.__code__.co_firstlineno + 2
    printed = capsys.readouterr().out
    assert printed.endswith(f"test_queries.py:{line}: hidden: f32[8, 16@tp] {{dp: R}}\n")
    assert printed.count("\n") == 1


def test_revealing_under_a_check_that_collects_is_a_finding_with_the_history(capsys):
    collector = Collector()
    with checking(collect=collector):
        hidden = annotated()
        assert reveal_type(hidden * 2) is not hidden
    (found,) = collector.result().findings
    assert found.headline == "SW922 revealed-type: hidden * 2 is f32[8, 16] {dp: R, tp: V}"
    assert found.severity is Severity.NOTE
    assert [hop.text for hop in found.operands[0].origin] == ["asserted here"]
    assert capsys.readouterr().out == ""


def test_revealing_names_an_expression(capsys):
    pair = [annotated()]
    reveal_type(pair[0])
    assert ": pair[0]: f32[8, 16@tp]" in capsys.readouterr().out


def test_revealing_works_on_what_has_no_type(capsys):
    y = torch.zeros(2)
    set_type(y, UNKNOWN_TYPE)
    reveal_type(y)
    assert capsys.readouterr().out.endswith(": y: f32[2] unknown\n")


def test_revealing_costs_nothing_when_erased(capsys, monkeypatch):
    monkeypatch.setattr(session, "erased", True)
    x = annotated()
    assert reveal_type(x) is x
    assert capsys.readouterr().out == ""
