"""Numbers decide about hand-written rules, forward and backward; wrong rules are planted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import Function

from shardwise import I, P, R, S, SpmdType, SpmdTypeError, V, assert_type, rules
from shardwise.checker import typecheck
from shardwise.rulecheck import RuleCheckError, RuleCheckReport, rulecheck

torch.set_num_threads(1)
torch.manual_seed(7)
X, W = torch.randn(4, 6), torch.randn(6, 2)


class Matmul(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad

    @staticmethod
    def spmd_typecheck(*, x: Any, w: Any) -> Any:
        return rules.einsum("bk,ko->bo", x, w, linear_in=(0, 1))


class RowParallel(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        out = x @ w
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad, None

    @staticmethod
    def spmd_typecheck(*, x: Any, w: Any, group: Any) -> Any:
        return rules.all_reduce(rules.einsum("bk,ko->bo", x, w, linear_in=(0, 1)), group, src=P, dst=I)


def with_rule(parent: type, hook: Any, **body: Any) -> type:
    methods = {name: staticmethod(method) for name, method in body.items()}
    return type("Planted", (parent,), {"spmd_typecheck": staticmethod(hook), **methods})


def on(*places: Any) -> dict[str, Any]:
    """The placement of x and w on one axis."""
    return {name: {"shard": place} for name, place in zip("xw", places, strict=True)}


class TestEnumeration:
    def test_a_right_rule_is_confirmed_wherever_it_admits(self):
        report = rulecheck(Matmul, (X, W))
        assert isinstance(report, RuleCheckReport)
        admitted = [on(R, R), on(R, S(1)), on(S(0), R), on(S(1), S(0)), on(P, R), on(R, P), on(I, I)]
        assert report.checked == admitted
        assert report.forward_only == []
        assert [case for case, _ in report.rejected] == [on(R, S(0)), on(S(1), R), on(P, P)]
        assert "label 'k'" in report.rejected[0][1]

    def test_the_axis_and_its_size_can_be_chosen(self):
        report = rulecheck(Matmul, (X, W), mesh={"tp": 3})
        assert {"x": {"tp": S(1)}, "w": {"tp": S(0)}} in report.checked
        assert {"x": {"tp": S(0)}, "w": {"tp": R}} not in report.checked

    def test_several_axes_are_combined(self):
        report = rulecheck(Matmul, (X[:, :4], W[:4]), mesh={"dp": 2, "tp": 2})
        assert {"x": {"dp": S(0), "tp": S(1)}, "w": {"dp": R, "tp": S(0)}} in report.checked
        assert {"x": {"dp": P, "tp": S(0)}, "w": {"dp": R, "tp": R}} in report.checked

    def test_integers_are_not_tried_as_pending_sums(self):
        class Pick(Function):
            @staticmethod
            def forward(ctx: Any, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(index)
                ctx.rows = table.shape[0]
                return table[index]

            @staticmethod
            def backward(ctx: Any, grad: torch.Tensor) -> Any:
                (index,) = ctx.saved_tensors
                return torch.zeros(ctx.rows, *grad.shape[1:]).index_add(0, index, grad), None

            @staticmethod
            def spmd_typecheck(*, table: Any, index: Any) -> Any:
                return rules.einsum("_h,i->ih", table, index, linear_in=(0,))

        report = rulecheck(Pick, (torch.randn(5, 4), torch.tensor([0, 3, 3, 1, 2, 4])))
        assert {"table": {"shard": P}, "index": {"shard": R}} in report.checked
        assert not any(case["index"]["shard"] is P for case, _ in report.rejected)

    def test_a_rule_that_admits_nothing_is_an_error_with_all_reasons(self):
        def never(*, x: Any, w: Any) -> Any:
            raise SpmdTypeError("not today", code="SW305")

        with pytest.raises(RuleCheckError, match="admits no placement") as caught:
            rulecheck(with_rule(Matmul, never), (X, W))
        assert str(caught.value).count("not today") == 10

    def test_a_function_without_backward_is_checked_forward_only(self):
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        body = {
            "forward": staticmethod(forward),
            "spmd_typecheck": staticmethod(lambda *, x: rules.einsum("ab->ab", x, linear_in=(0,))),
        }
        report = rulecheck(type("Twice", (Function,), body), (X,))
        assert report.forward_only == report.checked != []

    def test_an_imperative_rule_rejects_by_raising(self):
        def hook(out: Any, *, x: Any, w: Any) -> None:
            rules.einsum("bk,ko->bo", x, w, out=out)

        report = rulecheck(with_rule(Matmul, hook), (X, W))
        assert report.checked == [on(R, R), on(R, S(1)), on(S(0), R), on(S(1), S(0)), on(I, I)]
        assert on(P, R) in [case for case, _ in report.rejected]

    @pytest.mark.parametrize(
        ("args", "words"), [((X, "a", "b"), "which of 'a', 'b' are mesh axes"), ((3,), "no tensor among")]
    )
    def test_what_cannot_be_enumerated_is_a_type_error(self, args, words):
        cls = type("Any", (Function,), {"forward": staticmethod(lambda ctx, *rest: None)})
        with pytest.raises(TypeError, match=words):
            rulecheck(cls, args)


class TestPlantedForward:
    @pytest.mark.parametrize(
        ("hook", "placement", "words"),
        [
            (lambda *, x, w: rules.einsum("bk,ko->bo", x, w, linear_in=((0, 1),)), on(P, P), "off by up to"),
            (lambda *, x, w: (rules.ignore(w), rules.einsum("ab->ab", x))[1], on(S(0), S(1)), "expected"),
            (lambda *, x, w: claim(x, w, R), on(S(0), R), "shapes differ|shape|differ by up to"),
            (lambda *, x, w: claim(x, w, R), on(S(1), S(0)), "claimed R over shard, but ranks 0 and 1 of it differ"),
            (lambda *, x, w: claim(x, w, P), on(R, R), "off by up to"),
            (lambda *, x, w: claim(x, w, S(0)), on(R, R), r"shape \(8, 2\), expected \(4, 2\)"),
        ],
    )
    def test_a_wrong_claim_about_the_result_is_refuted(self, hook, placement, words):
        with pytest.raises(RuleCheckError, match=words) as caught:
            rulecheck(with_rule(Matmul, hook), (X, W), placement, mesh={"shard": 2})
        assert "output 0 of Planted" in str(caught.value) or "cannot do" in str(caught.value)

    def test_a_rule_that_does_not_say_where_the_result_is_sharded_is_rejected(self):
        cls = with_rule(Matmul, lambda *, x, w: claim(x, w, V))
        with pytest.raises(SpmdTypeError, match="output 0 varies over shard") as caught:
            rulecheck(cls, (X, W), on(R, R), mesh={"shard": 2})
        assert caught.value.code == "SW408"

    def test_a_kernel_that_fails_on_an_admitted_placement_refutes_the_rule(self):
        cls = with_rule(Matmul, lambda *, x, w: claim(x, w, R))
        with pytest.raises(RuleCheckError, match=r"admits what the function cannot do.*on rank 0"):
            rulecheck(cls, (X, W), on(S(1), R), mesh={"shard": 2})


def claim(x: Any, w: Any, place: Any) -> Any:
    rules.ignore(x, w)
    return assert_type(rules.NdimWithSpmdType(2), {"shard": place})


class TestPlantedBackward:
    def test_a_gradient_that_is_not_what_its_type_says_is_refuted(self):
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad / grad.shape[0]  # a mean over the rank's own rows

        cls = with_rule(Matmul, Matmul.spmd_typecheck, backward=backward)
        rulecheck(cls, (X, W), on(R, S(1)), mesh={"shard": 2})
        with pytest.raises(
            RuleCheckError, match=r"the gradient of w in Planted with x \{shard: S\(0\)\}.*off by up to"
        ):
            rulecheck(cls, (X, W), on(S(0), R), mesh={"shard": 2})

    def test_a_backward_that_fails_is_reported(self):
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            raise ZeroDivisionError("no slope")

        cls = with_rule(Matmul, Matmul.spmd_typecheck, backward=backward)
        with pytest.raises(RuleCheckError, match=r"the backward of Planted fails.*no slope"):
            rulecheck(cls, (X, W), on(R, R), mesh={"shard": 2})

    @pytest.mark.parametrize("placement", [on(S(0), I), on(R, I)])
    def test_reading_an_invariant_operand_as_replicate_is_refuted_by_its_gradient(self, placement):
        def hook(*, x: Any, w: Any) -> Any:
            return rules.einsum("bk,ko->bo", x, rules.convert(w, "shard", src=I, dst=R))

        with pytest.raises(RuleCheckError, match="the gradient of w"):
            rulecheck(with_rule(Matmul, hook), (X, W), placement, mesh={"shard": 2})

    def test_a_gradient_that_is_missing_on_the_ranks_is_refuted(self):
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            x, w = ctx.saved_tensors
            return (grad @ w.t() if grad.shape[0] == 4 else None), x.t() @ grad

        with pytest.raises(RuleCheckError, match="the gradient of x in Planted is None"):
            rulecheck(
                with_rule(Matmul, Matmul.spmd_typecheck, backward=backward), (X, W), on(S(0), R), mesh={"shard": 2}
            )

    def test_only_what_requires_grad_is_differentiated_if_anything_does(self):
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return None, ctx.saved_tensors[0].t() @ grad

        cls = with_rule(Matmul, Matmul.spmd_typecheck, backward=backward)
        rulecheck(cls, (X, W.clone().requires_grad_()), on(S(0), R), mesh={"shard": 2})


class TestExplicit:
    def test_it_returns_none(self):
        assert rulecheck(Matmul, (X, W), on(S(0), R), mesh={"shard": 2}) is None

    def test_types_may_be_given_with_their_order(self):
        both = {"x": SpmdType({"a": R, "b": V}, None), "w": {"a": R, "b": R}}
        with pytest.raises(SpmdTypeError):
            rulecheck(Matmul, (X, W), both, mesh={"a": 2, "b": 2})
        both["x"] = SpmdType({"a": S(0), "b": R})
        assert rulecheck(Matmul, (X, W), both, mesh={"a": 2, "b": 2}) is None

    def test_the_rules_rejection_is_an_spmd_type_error(self):
        with pytest.raises(SpmdTypeError, match="label 'k'") as caught:
            rulecheck(Matmul, (X, W), on(S(1), R), mesh={"shard": 2})
        assert caught.value.code == "SW305"

    @pytest.mark.parametrize(
        ("placements", "mesh", "words"),
        [
            (on(R, R), None, "needs mesh="),
            ({"x": {"shard": R}}, {"shard": 2}, r"missing \['w'\]"),
            ({**on(R, R), "z": {}}, {"shard": 2}, r"unknown \['z'\]"),
            ({"x": {}, "w": {"shard": R}}, {"shard": 2}, "x does not cover the mesh axis 'shard'"),
        ],
    )
    def test_a_wrong_call_is_a_type_error(self, placements, mesh, words):
        with pytest.raises(TypeError, match=words):
            rulecheck(Matmul, (X, W), placements, mesh=mesh)

    def test_tensors_inside_containers_are_placed_by_their_path(self):
        def forward(ctx: Any, pair: Any) -> torch.Tensor:
            return pair[0] + pair[1]["other"]

        body = {
            "forward": staticmethod(forward),
            "spmd_typecheck": staticmethod(lambda *, pair: rules.einsum("ab,ab->ab", pair[0], pair[1]["other"])),
        }
        cls = type("Add", (Function,), body)
        placement = {"pair[0]": {"shard": S(0)}, "pair[1]['other']": {"shard": S(0)}}
        assert rulecheck(cls, ([X, {"other": X}],), placement, mesh={"shard": 2}) is None

    def test_the_kernel_is_not_checked_while_it_runs(self):
        with typecheck():
            assert rulecheck(Matmul, (X, W), on(S(0), R), mesh={"shard": 2}) is None


class TestGroups:
    def test_groups_need_several_ranks(self):
        with pytest.raises(RuleCheckError, match="local_tensor_mode=True"):
            rulecheck(RowParallel, (X, W, "tp"))

    def test_a_function_that_communicates_is_confirmed(self):
        report = rulecheck(RowParallel, (X, W, "tp"), local_tensor_mode=True)
        assert [(case["x"]["tp"], case["w"]["tp"]) for case in report.checked] == [(S(1), S(0)), (P, R), (R, P)]
        assert report.forward_only == []

    def test_a_wrong_gradient_type_is_refuted(self):
        def hook(*, x: Any, w: Any, group: Any) -> Any:
            return rules.all_reduce(rules.einsum("bk,ko->bo", x, w), group, src=P, dst=R)

        placement = {"x": {"tp": S(1)}, "w": {"tp": S(0)}}
        with pytest.raises(RuleCheckError, match="the gradient of x"):
            rulecheck(with_rule(RowParallel, hook), (X, W, "tp"), placement, mesh={"tp": 2}, local_tensor_mode=True)

    def test_a_function_whose_ranks_wait_for_each_other_is_refuted_at_once(self):
        def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
            if dist.get_rank() == 0:
                dist.all_reduce(x.clone(), group=group)
            return x.clone()

        def hook(*, x: Any, group: Any) -> Any:
            return rules.einsum("ab->ab", x)

        cls = type("Stuck", (Function,), {"forward": staticmethod(forward), "spmd_typecheck": staticmethod(hook)})
        with pytest.raises(RuleCheckError, match=r"stops the ranks: rank 0 of 2 waits(.|\n)*rank 1 never arrived"):
            rulecheck(cls, (X, "tp"), {"x": {"tp": R}}, mesh={"tp": 2}, local_tensor_mode=True)
