"""Global mode: axes and regions that keep local semantics, and how a tensor gets into global types and out of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise import I, P, PartitionSpec, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.result import Collector

from .helpers import make, operand, place, refused

WHOLE = "f32[4, 6] {dp: R, tp: R}"


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (("nope",), ("nope", "dp", "tp")),
        (("dp", "dp"), ("duplicates", "dp")),
        (("tp",), ("local_axes must come before all global axes", "dp", "tp")),
    ],
)
def test_local_axes_are_the_outermost_axes_of_the_mesh(
    mesh: Any, axes: tuple[str, ...], words: tuple[str, ...]
) -> None:
    with pytest.raises(SpmdValueError) as caught, spmd.set_current_mesh(local_axes=axes):
        pytest.fail("the mesh was accepted")
    assert [word for word in words if word not in str(caught.value)] == []


def test_an_axis_outside_the_mesh_cannot_be_local(mesh: Any) -> None:
    outside = spmd.MeshAxis.of(2, 2)
    assert outside not in (spmd.current_mesh() or ())
    with pytest.raises(SpmdValueError, match="outside the mesh"), spmd.set_current_mesh(local_axes=(outside,)):
        pytest.fail("the mesh was accepted")


def test_local_axes_need_a_mesh() -> None:
    with pytest.raises(RuntimeError, match="mesh"), spmd.set_current_mesh(local_axes=("dp",)):
        pytest.fail("accepted without a mesh")


def test_every_axis_may_be_local_and_a_nested_mesh_has_its_own(mesh: Any) -> None:
    x = spmd.assert_type(torch.rand(4, 6), {"dp": V, "tp": V})
    with typecheck(local=False):
        with spmd.set_current_mesh(local_axes=("dp", "tp")):
            assert place(x.softmax(0)) == "V"
            with spmd.set_current_mesh(mesh), refused("SW408", "x", "dp"):
                x.softmax(0)
            assert place(x.mean(), "dp") == "V"
        with refused("SW408"):
            x.softmax(0)


def test_local_axes_change_nothing_in_local_mode(mesh: Any) -> None:
    x = spmd.assert_type(torch.rand(4, 6), {"dp": V, "tp": R})
    with typecheck(), spmd.set_current_mesh(local_axes=("dp",)):
        assert str(spmd.typeof(x.mean(0))) == "f32[6] {dp: V, tp: R}"


def test_an_axis_that_is_not_local_is_still_tracked(mesh: Any) -> None:
    x = operand("f32[4, 6@tp] {dp: V}")
    with typecheck(local=False), spmd.set_current_mesh(local_axes=("dp",)):
        assert str(spmd.typeof(x.t())) == "f32[6@tp, 4] {dp: V}"
        with refused("SW405", "tp"):
            x.softmax(-1)


def test_a_local_region_forgets_specs_and_ends_with_a_statement(mesh: Any) -> None:
    x = operand("f32[4, 6@tp] {dp: R}")
    with typecheck(local=False):
        with spmd.local():
            y = x.softmax(-1)
            assert str(spmd.typeof(y)) == WHOLE.replace("tp: R", "tp: V")
        with refused("SW408", "y", "tp"):
            y * 2
        spmd.assert_type(y, {"tp": S(1)})
        assert str(spmd.typeof(y * 2)) == "f32[4, 6@tp] {dp: R}"


@pytest.mark.parametrize("local", [True, False])
def test_a_local_map_states_the_specs_of_what_comes_out(mesh: Any, local: bool) -> None:
    @spmd.local_map(in_types=({"dp": R, "tp": S(1)},), out_types={"dp": R, "tp": S(0)})
    def own(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1).t()

    x = operand("f32[4, 6@tp] {dp: R}")
    wrong = operand("f32[4@tp, 6] {dp: R}")
    with typecheck(local=local):
        assert place(own(x)) == "V"
        if not local:
            assert str(spmd.typeof(own(x) + 1)) == "f32[6@tp, 4] {dp: R}"
            with refused("SW140", "own"):
                own(wrong)


@pytest.mark.parametrize("local", [True, False])
def test_a_local_map_whose_body_gives_another_type_is_refused(mesh: Any, local: bool) -> None:
    @spmd.local_map(out_types={"dp": R, "tp": R})
    def own(x: torch.Tensor) -> torch.Tensor:
        return x.amax(-1)

    with typecheck(local=local), refused("SW140", "own", "tp"):
        own(operand("f32[4, 6@tp] {dp: R}"))


@pytest.mark.parametrize(
    ("first", "then", "spec", "expected"),
    [
        ({"dp": R, "tp": V}, {"tp": S(1)}, None, "f32[4, 6@tp] {dp: R}"),
        ({"dp": V, "tp": V}, {}, PartitionSpec(("dp", "tp"), None), "f32[4@(dp,tp), 6]"),
        ({"dp": R, "tp": S(0)}, {"tp": V}, None, "f32[4@tp, 6] {dp: R}"),
        ({"dp": R, "tp": S(0)}, {"tp": S(0)}, None, "f32[4@tp, 6] {dp: R}"),
        ({"dp": R, "tp": S(0)}, {"tp": S(-2)}, None, "f32[4@tp, 6] {dp: R}"),
        ({"dp": R, "tp": S(0)}, {"tp": S(1)}, None, "SW131"),
        ({"dp": R, "tp": S(0)}, {"tp": R}, None, "SW130"),
        ({"dp": R, "tp": R}, {}, PartitionSpec("tp", None), "SW130"),
    ],
)
def test_a_type_is_refined_and_never_contradicted(
    mesh: Any, first: dict[str, Any], then: dict[str, Any], spec: Any, expected: str
) -> None:
    x = spmd.assert_type(torch.rand(4, 6), first)
    with typecheck(local=False):
        if expected.startswith("SW"):
            with refused(expected):
                spmd.assert_type(x, then, partition_spec=spec)
        else:
            spmd.assert_type(x, then, partition_spec=spec)
            assert str(spmd.typeof(x.clone())) == expected


def test_invariant_values_follow_their_own_rules(mesh: Any) -> None:
    x = spmd.assert_type(torch.rand(4, 6, requires_grad=True), {"dp": S(0), "tp": I})
    weight = spmd.assert_type(torch.rand(6, requires_grad=True), {"dp": R, "tp": I})
    with typecheck(local=False):
        assert str(spmd.typeof(x * weight)) == "f32[4@dp, 6] {tp: I}"
        with refused("SW101", "weight", "tp"):
            spmd.convert(x, "tp", src=I, dst=R) * weight
        with torch.no_grad():
            assert str(spmd.typeof(spmd.convert(x, "tp", src=I, dst=R) * weight)) == "f32[4@dp, 6] {tp: R}"


def test_a_partial_value_has_no_spec(tp_mesh: Any) -> None:
    with typecheck(local=False):
        assert str(spmd.typeof(make("P") + make("P"))) == "f32[4, 4] {tp: P}"
        with refused("SW112"):
            make("P").softmax(0)
        assert str(spmd.typeof(spmd.reduce_scatter(make("P"), "tp", src=P, dst=S(1)))) == "f32[4, 1@tp]"


@pytest.mark.parametrize(
    ("call", "before", "after"),
    [
        (lambda x: spmd.all_gather(x, "dp", src=V, dst=R), "f32[4, 6@tp] {dp: V}", "f32[2, 4, 6@tp] {dp: R}"),
        (lambda x: spmd.all_gather(x, "dp", src=S(0), dst=R), "f32[4, 6@tp] {dp: V}", "f32[8, 6@tp] {dp: R}"),
        (lambda x: spmd.reduce_scatter(x, "dp", dst=V), "f32[2, 6@tp] {dp: P}", "f32[6@tp] {dp: V}"),
        (lambda x: spmd.reduce_scatter(x, "dp", dst=S(0)), "f32[2, 6@tp] {dp: P}", "f32[1, 6@tp] {dp: V}"),
        (lambda x: spmd.convert(x, "dp", src=R, dst=V), "f32[2, 6@tp] {dp: R}", "f32[6@tp] {dp: V}"),
        (lambda x: spmd.all_to_all(x, "dp"), "f32[2, 6@tp] {dp: V}", "f32[2, 6@tp] {dp: V}"),
        (lambda x: spmd.reinterpret(x, "dp", src=V, dst=P), "f32[2, 6@tp] {dp: V}", "f32[2, 6@tp] {dp: P}"),
    ],
)
def test_collectives_over_local_axes_keep_the_other_axes_on_their_dims(
    mesh: Any, call: Any, before: str, after: str
) -> None:
    with spmd.set_current_mesh(local_axes=("dp",)), typecheck(local=False):
        result = call(operand(before))
        assert str(spmd.typeof(result)) == after


@spmd.register_local_autograd_function
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


class Halved(Doubled):
    pass


@spmd.register_decomposition(Halved)
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def test_a_function_without_labels_goes_into_a_local_region_or_is_decomposed(tp_mesh: Any) -> None:
    x = operand("f32[4, 6@tp]").requires_grad_()
    with typecheck(local=False):
        assert place(Doubled.apply(operand("f32[4, 6] {tp: R}"))) == "R"
        with refused("SW411", "Doubled", "with local()"):
            Doubled.apply(x)
        with spmd.local():
            y = Doubled.apply(x)
        assert str(spmd.typeof(spmd.assert_type(y, {"tp": S(1)}))) == "f32[4, 6@tp]"
        assert str(spmd.typeof(Halved.apply(x))) == "f32[4, 6@tp]"


def test_what_is_like_an_unknown_tensor_is_unknown(mesh: Any) -> None:
    x = operand("f32[4, 6@tp] {dp: R}")
    collector = Collector(mesh="", script="", rank=0)
    with checking(local=False, collect=collector):
        refused_on_tp = x.softmax(-1)
        y = torch.Tensor(4, 6)
        spmd.assert_type_like(y, refused_on_tp)
        y + x
    assert [finding.code for finding in collector.result().findings] == ["SW405"]


def test_the_validation_of_torch_distributions_is_no_reduction(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4, 4), {"dp": R, "tp": S(0)})
    with typecheck(local=False):
        normal = torch.distributions.Normal(x, torch.ones(4, 4), validate_args=True)
        assert str(spmd.typeof(normal.log_prob(x))) == "f32[4@tp, 4] {dp: R}"


def test_a_mask_is_no_index_of_the_same_shape(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4, 4), {"dp": R, "tp": S(1)})
    index = spmd.assert_type(torch.zeros(4, 4, dtype=torch.int64), {"dp": R, "tp": R})
    mask = spmd.assert_type(torch.ones(4, 4, dtype=torch.bool), {"dp": R, "tp": R})
    with typecheck(local=False):
        assert str(spmd.typeof(x[index])) == "f32[4, 4, 4@tp] {dp: R}"
        with pytest.raises(spmd.SpmdTypeError) as caught:
            x[mask]
    assert caught.value.finding.code in ("SW402", "SW405")


@pytest.mark.parametrize("partner", [None, {"dp": R}])
def test_what_an_operand_without_a_type_does_to_shards_is_unknown(mesh: Any, partner: dict[str, Any] | None) -> None:
    x, w = operand("f32[4, 6@tp] {dp: R}"), torch.randn(8, 6)
    if partner is not None:
        spmd.assert_type(w, partner)
    with typecheck("permissive", local=False):
        y = torch.nn.functional.linear(x, w)
        assert (place(y), place(y, "dp")) == ("", "R" if partner else "")
        assert place(y.softmax(-1)) == ""
    collector = Collector(mesh="", script="", rank=0)
    with checking(local=False, collect=collector):
        torch.nn.functional.linear(x, w)
    assert [finding.code for finding in collector.result().findings] == ["SW102" if partner is None else "SW103"]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.view(4, 6, 128),
        lambda x: x.view(4, 6, 16, 8),
        lambda x: x.reshape(-1, 12, 128),
        lambda x: x.unflatten(-1, (16, 8)),
        lambda x: x.expand(4, 6, 128),
        lambda x: x.expand(3, 4, -1, -1),
    ],
)
def test_sizes_of_the_whole_are_not_those_of_a_shard(mesh: Any, call: Any) -> None:
    call(torch.zeros(4, 6, 128))  # as on one device
    x = operand("f32[2@dp, 6, 32@tp]")
    collector = Collector(mesh="", script="", rank=0)
    with pytest.raises(RuntimeError), checking(local=False, collect=collector):
        call(x)
    [finding] = collector.result().findings
    assert finding.code == "SW418"
    assert "4 x 6 x 128 of x, of which one rank has 2 x 6 x 32" in finding.message
    assert "x.shape[i]" in finding.help[0]


@pytest.mark.parametrize("call", [lambda x: x.view(5, 7), lambda x: x.expand(3, 3), lambda x: x.unflatten(-1, (5, 5))])
def test_sizes_that_fit_nothing_are_refused_by_torch(mesh: Any, call: Any) -> None:
    with typecheck(local=False), pytest.raises(RuntimeError) as caught:
        call(operand("f32[2@dp, 6, 32@tp]"))
    assert not isinstance(caught.value, spmd.SpmdTypeError)


def test_running_statistics_are_cut_like_the_channels_and_unknown_where_the_norm_was_refused(mesh: Any) -> None:
    collector = Collector(mesh="", script="", rank=0)
    with checking(local=False, collect=collector):
        norm = torch.nn.BatchNorm1d(4)
        spmd.assert_type([*norm.parameters()], {"dp": R, "tp": S(0)})
        spmd.assert_type([norm.running_mean, norm.running_var], {"dp": R, "tp": S(0)})
        norm(operand("f32[6, 4@tp] {dp: R}"))
        assert str(spmd.typeof(norm.running_mean)) == "f32[4@tp] {dp: R}"
        assert not collector.result().findings
        norm(operand("f32[6@dp, 4@tp]"))
        norm(operand("f32[6, 4@tp] {dp: R}"))
    assert [finding.code for finding in collector.result().findings] == ["SW405"]
