"""The global oracle: it knows the truths of a few operators by heart, and objects to wrong labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from shardwise.op_rules.propagation.dim_labels import Call, Fate, Labeller, Labelling, Shape, pointwise, signature
from shardwise.op_rules.propagation.local import Refusal
from shardwise.op_rules.propagation.sharded import Sharded, sharded_rule
from shardwise.oracle.global_types import check_claims, refute_on_grid, true_placements
from shardwise.oracle.reassemble import Grid
from shardwise.oracle.sharded_types import Answer, Fact, Placements
from shardwise.types.placement import P, PerMeshAxisSpmdType, R, Shard, V
from shardwise.types.placement import Shard as S
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

torch.set_num_threads(1)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def labelled(labels: Labeller, results: int = 1) -> Callable[..., Answer]:
    """A ruleset with one row, which has these labels and knows of no partial operand."""

    def ask(fn: Any, tensors: Sequence[torch.Tensor], placements: Placements) -> Answer:
        if P in placements:
            return "partial"
        if set(placements) == {R}:
            return (R,) * results
        labelling = labels(Call(tuple(Shape(tuple(tensor.shape)) for tensor in tensors), {}))
        if labelling is None:
            return "no labels"
        operands = [Sharded(None if isinstance(p, S) else p, p.dim if isinstance(p, S) else None) for p in placements]
        placed = sharded_rule(labelling, operands, partials=True)
        if isinstance(placed, Refusal):
            return placed.reason
        return tuple(placed.placement if dim is None else S(dim) for dim in placed.dims)

    return ask


@pytest.mark.parametrize("size", [2, 3])
def test_the_truths_about_a_product_of_matrices(size: int) -> None:
    facts = true_placements(torch.matmul, (real(4, 5), real(5, 7)), size=size)
    assert facts == {
        Fact((R, R), (R,)),
        Fact((S(0), R), (S(0),)),
        Fact((R, S(1)), (S(1),)),
        Fact((S(1), S(0)), (P,)),
        Fact((P, R), (P,)),
        Fact((R, P), (P,)),
    }


@pytest.mark.parametrize(
    ("fn", "truths"),
    [
        (lambda x: x.sum(0), [((R,), R), ((S(0),), P), ((S(1),), S(0)), ((P,), P)]),
        (lambda x: x.mean(0), [((R,), R), ((S(1),), S(0)), ((P,), P)]),  # 5 rows: uneven
        (lambda x: x.softmax(1), [((R,), R), ((S(0),), S(0))]),
        (lambda x: x.t(), [((R,), R), ((S(0),), S(1)), ((S(1),), S(0)), ((P,), P)]),
        (lambda x: x.tril(), [((R,), R), ((P,), P)]),
        (lambda x: x > 0, [((R,), R), ((S(0),), S(0)), ((S(1),), S(1))]),
    ],
)
def test_the_truths_about_one_operand(fn: Any, truths: list[tuple[Placements, PerMeshAxisSpmdType]]) -> None:
    assert true_placements(fn, (real(5, 4),)) == {Fact(operands, (result,)) for operands, result in truths}


def test_each_result_has_its_own_placement() -> None:
    facts = true_placements(lambda x: (x.amax(1), x.t()), (real(5, 4),))
    assert Fact((S(0),), (S(0), S(1))) in facts
    assert Fact((S(0),), (S(0), S(0))) not in facts


def test_a_gradient_that_misses_the_other_ranks_refutes() -> None:
    # Right in the forward pass only: the gradient of what is detached should be a pending sum and is zero.
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            x, w = ctx.saved_tensors
            return grad * w, (grad * x).sum(0) / x.shape[0] * 5

    facts = true_placements(Forgets.apply, (real(5, 4), real(4)))
    assert Fact((S(1), S(0)), (S(1),)) in facts
    assert Fact((S(0), R), (S(0),)) not in facts


@pytest.mark.parametrize(
    ("fn", "labels", "shapes", "refuted"),
    [
        (lambda x: x.softmax(-1), pointwise, [(4, 5)], "S(1) -> S(1)"),
        (torch.matmul, signature("m k, k n -> n m"), [(4, 4), (4, 4)], "S(0), R -> S(1)"),
        (torch.cumsum, pointwise, [(4, 5)], "S(0) -> S(0)"),
        (lambda x: x.mean(0), signature("a b -> b"), [(5, 4)], "S(0) -> P"),
        (lambda x: x.amax(0), signature("a b -> b"), [(5, 4)], "S(0) -> P"),
        (lambda x: (x > 0).any(0), signature("a b -> b"), [(5, 4)], "S(0) -> P"),
        (lambda x: x.flip(0), pointwise, [(5, 4)], "S(0) -> S(0)"),
        (torch.add, lambda call: Labelling((("a", "b"), ("x", "b")), (("a", "b"),)), [(5, 4), (5, 4)], "S(0), R"),
    ],
)
def test_a_wrong_label_is_objected_to(fn: Any, labels: Labeller, shapes: list[tuple[int, ...]], refuted: str) -> None:
    call = (lambda x: torch.cumsum(x, 0)) if fn is torch.cumsum else fn
    report = check_claims(call, [real(*shape) for shape in shapes], labelled(labels))
    assert any(refuted in str(finding) for finding in report.wrong), report


def test_a_right_book_is_not_objected_to_and_covers() -> None:
    report = check_claims(torch.matmul, (real(4, 5), real(5, 7)), labelled(signature("m k, k n -> m n")))
    assert report.wrong == ()
    assert {str(finding.fact) for finding in report.missing} == {"P, R -> P", "R, P -> P"}
    assert report.covered == 4


def test_a_truth_that_the_book_refuses_is_missing_with_its_reason() -> None:
    def labels(call: Call) -> Labelling:
        return Labelling((("a", "b"),), (("a", "b"),), {"a": Fate.OPAQUE}, {"a": "too careful"})

    report = check_claims(torch.exp, (real(4, 5),), labelled(labels))
    assert [(str(finding.fact), finding.reason) for finding in report.missing] == [("S(0) -> S(0)", "too careful")]


def test_what_only_even_shards_make_true_must_not_be_claimed() -> None:
    def pairs(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 2, 2, 5)

    ruleset = labelled(lambda call: Labelling((("a", "b"),), (("a", "c", "b"),), {"b": Fate.OPAQUE}))
    assert check_claims(pairs, (real(4, 5),), ruleset, sizes=(2,)).wrong == ()
    assert [finding.size for finding in check_claims(pairs, (real(4, 5),), ruleset).wrong] == [3]


def test_values_of_a_domain_that_reordering_leaves_are_given() -> None:
    """Counts of smaller boundaries add up, as long as the boundaries are sorted."""
    sets = [(torch.tensor([shift, shift + 1.0, shift + 2.0]),) for shift in (0.0, 0.5)]

    def fn(boundaries: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(torch.tensor([0.25, 0.75, 1.75]), boundaries.detach())

    ruleset = labelled(lambda call: Labelling((("b",),), ((None,),)))
    assert check_claims(fn, sets[0], ruleset, others=sets[1]).wrong == ()
    assert check_claims(fn, sets[0], ruleset, value_sets=6).wrong != ()


def test_results_that_no_value_changes_prove_nothing_about_sums() -> None:
    report = check_claims(torch.isnan, (real(4, 5),), labelled(pointwise))
    assert report.missing == ()


def test_an_operator_that_fails_on_a_shard_has_no_truth_there() -> None:
    facts = true_placements(lambda x: x.view(2, 2, 5), (real(4, 5),))
    assert Fact((Shard(0),), (Shard(0),)) not in facts
    assert Fact((R,), (R,)) in facts


def test_two_axes_at_once() -> None:
    grid = Grid.of({"dp": 2, "tp": 3})
    dp, tp = grid.axes.values()

    def typed(on_dp: Any, on_tp: Any, *spec: Any) -> TensorType:
        return TensorType.of({dp: on_dp, tp: on_tp}, PartitionSpec(*spec) if spec else None)

    operands = (typed(V, V, dp, tp), typed(R, V, tp, None))
    values = (real(4, 6), real(6, 5))
    assert refute_on_grid(torch.matmul, values, operands, [typed(V, P, dp, None)], grid) is None
    for wrong in (typed(V, R, dp, None), typed(P, P), typed(V, V, dp, tp)):
        assert "result 0" in str(refute_on_grid(torch.matmul, values, operands, [wrong], grid))
    both = typed(V, V, (dp, tp), None)
    assert refute_on_grid(torch.relu, (real(6, 2),), [both], [both], grid) is None
    assert refute_on_grid(torch.relu, (real(6, 2),), [both], [typed(V, V, (tp, dp), None)], grid) is not None
