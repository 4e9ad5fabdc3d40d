"""Powers of an axis's size: what the types say of a program is what it computes on two and on three ranks."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.types import SpmdTypeError
from shardwise.types.tensor_type import Exponent, TensorType

from .on_ranks import Case, drawn, judge, shard, whole

ROWS = 12


def exponent(x: Any) -> Exponent:
    return spmd.typeof(x).type.exponent(spmd.normalize_axis("tp"))


def typed(x: Tensor, place: Any) -> Tensor:
    x.__dict__.clear()
    return spmd.assert_type(x, {"tp": place})


UNARY: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("square", lambda x: x.square()),
    ("cube", lambda x: x**3),
    ("square root of the square", lambda x: x.square().sqrt()),
    ("square root", lambda x: x.abs().sqrt()),
    ("one over the square root", lambda x: x.abs().rsqrt()),
    ("fourth root", lambda x: x.abs() ** 0.25),
    ("reciprocal", lambda x: x.reciprocal()),
    ("number over it", lambda x: 0.5 / x),
    ("times a number", lambda x: x * 0.25),
    ("negated", lambda x: -x),
    ("norm", lambda x: x.norm()),
    ("largest", lambda x: x.amax()),
    ("relu", lambda x: torch.relu(x) + x),
    ("standard deviation", lambda x: x.std(correction=0)),
    ("normalised", lambda x: F.normalize(x, dim=0)),
    ("divided by itself", lambda x: x / x),
]
BINARY: list[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = [
    ("product", lambda x, y: x * y),
    ("quotient", lambda x, y: x / y),
    ("dot", lambda x, y: x @ y),
    ("first", lambda x, y: x),
    ("squared product", lambda x, y: x * y * y),
]


def programs(count: int) -> list[tuple[str, Callable[[Tensor, Tensor], Tensor]]]:
    """Random programs: steps on the sum of the ranks' means, which is n times too large, and on an equal value."""
    dice = random.Random(5)
    made = []
    for number in range(count):
        join = dice.choice(BINARY)
        steps = [dice.choice(UNARY) for _ in range(dice.randint(1, 3))]

        def program(scaled: Tensor, equal: Tensor, join: Any = join, steps: Any = steps) -> Tensor:
            x: Tensor = join[1](scaled, equal)
            for _, step in steps:
                x = step(x)
            return x

        made.append((f"{number}: " + ", ".join([join[0], *[name for name, _ in steps]]), program))
    return made


@pytest.mark.parametrize(("name", "program"), programs(60), ids=lambda value: value if isinstance(value, str) else "")
def test_a_known_exponent_is_the_power_by_which_the_value_grows(tp_mesh: Any, name: str, program: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    batch = torch.rand(ROWS, 8, generator=generator, dtype=torch.float64) + 0.5
    equal = torch.rand(8, generator=generator, dtype=torch.float64) + 0.5
    with typecheck(local=False):
        shard = typed(batch.chunk(4)[0].clone(), S(0))
        scaled = spmd.all_reduce(shard.mean(0), "tp", src=P, dst=R)
        assert exponent(scaled) == 1
        told = exponent(program(scaled, typed(equal.clone(), R)))
    one = program(batch.mean(0), equal)
    for ranks in (2, 3):
        sums = torch.stack([piece.mean(0) for piece in batch.chunk(ranks)]).sum(0)
        found = program(sums, equal)
        if told is not None:
            torch.testing.assert_close(found, float(ranks) ** told * one)


def test_what_a_root_is_taken_of_is_known_by_half_its_power(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x, gain = typed(torch.randn(4, 3), S(0)), typed(torch.randn(3), R)
        large = spmd.all_reduce(x.square().mean(0), "tp", src=P, dst=R)
        root = torch.rsqrt(large + 1e-6)
        assert exponent(root) == Fraction(-1, 2)
        assert exponent(root * root) == -1
        assert exponent(equal := typed(torch.ones(()), R)) == 0
        assert exponent(equal * large.sum().sqrt().item() ** 2) == 1
        assert str(spmd.typeof(root)) == "f32[3] {tp: R/n^1/2}"
        normed = x * root * gain
        with pytest.raises(SpmdTypeError, match="SW150"):
            normed - x
        with pytest.raises(SpmdTypeError, match=r"\*\*\(1/2\) times too small"):
            root + gain
        assert exponent(spmd.all_reduce(x.square().mean(0), "tp", src=P, dst=R, op="avg").sqrt()) == 0
        assert exponent(large ** (1 / 7)) is None, "no ratio of small numbers"


def test_a_clipping_coefficient_of_a_norm_that_is_off_by_a_root_is_refused(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = typed(torch.randn(4, 3), S(0))
        norm = spmd.all_reduce(x.square().sum(), "tp", src=P, dst=R).sqrt()
        assert exponent((0.5 / (norm + 1e-6)).clamp(max=1.0)) == 0
        averaged = spmd.all_reduce(x.square().sum(), "tp", src=P, dst=R, op="avg").sqrt()
        with pytest.raises(SpmdTypeError, match=r"SW151.*4\*\*\(1/2\) times too large"):
            (0.5 / (averaged + 1e-6)).clamp(max=1.0)
        with pytest.raises(SpmdTypeError, match="SW151"):
            torch.where(averaged > 0.5, 0.5 / averaged, 1.0)
        with pytest.raises(SpmdTypeError, match="SW151"):
            averaged.clamp(min=1.0)
        assert exponent(norm.clamp(min=1.0)) == 0
        assert exponent((x / x.shape[0]).clamp(min=1)) == 1, "counts are kept above zero on any scale"


def test_a_derivative_of_torch_func_has_the_scale_of_what_is_derived(tp_mesh: Any) -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(x @ w).square().sum()

    with typecheck(local=False):
        x, w = typed(torch.randn(4, 3), S(0)), typed(torch.randn(3), R)
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(w, x)
        assert exponent(each) == 0, "of each sample its own"
        assert exponent(each.sum(0) / x.shape[0]) == 1
        assert exponent(torch.func.grad(lambda w: loss(w, x) / x.shape[0])(w)) == 1
        whole = torch.func.grad(lambda w: loss(w, x) / (x.shape[0] * dist.get_world_size()))(w)
        assert exponent(whole) == 0


def test_beside_what_varies_a_share_of_an_equal_value_is_on_its_scale(tp_mesh: Any) -> None:
    with typecheck():
        x, w = typed(torch.randn(4, 3), V), typed(torch.randn(3), R)
        penalty = w.square().sum()
        assert exponent((x @ w).sum() + penalty / dist.get_world_size()) == 0
        for wrong in (penalty * dist.get_world_size(), penalty / dist.get_world_size() ** 2):
            with pytest.raises(SpmdTypeError, match="SW150"):
                (x @ w).sum() + wrong


def test_what_lies_side_by_side_has_a_scale_if_that_of_all_is_known(tp_mesh: Any) -> None:
    with typecheck():
        x, w = spmd.assert_type(torch.randn(4, 3), {"tp": S(0)}), typed(torch.randn(3), R)
        variance, mean = torch.var_mean(x, 0)
        assert exponent(torch.cat([mean, variance, torch.tensor([float(x.shape[0])])])) is None
        with pytest.raises(SpmdTypeError, match="SW150"):
            torch.cat([w, w / dist.get_world_size()])


def test_what_is_typed_is_joined_on_one_scale(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x, y = typed(torch.randn(4, 3), S(0)), typed(torch.randn(4), S(0))
        assert exponent(torch.stack([y.sum(), x.sum()])) == 0
        assert exponent(torch.stack([y.mean(), torch.tensor(1.0)])) == 1, "all is averaged over the ranks"
        assert exponent(torch.stack([y.sum(), torch.zeros(())])) == 0
        with pytest.raises(SpmdTypeError, match="SW150"):
            torch.stack([x.mean(), x.sum()])
        for equal in (typed(torch.randn(()), R), typed(torch.randn(()), R) / 8, torch.tensor(1.0)):
            with pytest.raises(SpmdTypeError, match="SW113"):
                torch.stack([x.sum(), equal])


@pytest.mark.parametrize("zero", [0, 0.0])
def test_nothing_times_a_value_is_on_every_scale(tp_mesh: Any, zero: float) -> None:
    """``loss + 0 * unused.sum()`` keeps parameters in the graph, whatever is summed there."""
    with typecheck(local=False):
        x = spmd.assert_type(torch.ones(ROWS, 4), {"tp": S(0)})
        w = spmd.assert_type(torch.ones(4, requires_grad=True), {"tp": R})
        y = x @ w
        assert exponent(y.mean()) == 1
        assert exponent(y.mean() + zero * y.sum()) == 1
        assert exponent(y.sum() + zero * y.mean()) == 0
        assert exponent((y * zero).sum() + y.mean()) == 1
        assert exponent(zero * y.sum()) is None


@pytest.mark.parametrize("begun", [lambda: torch.tensor(0.0), lambda: torch.as_tensor(0.0), lambda: torch.zeros(())])
def test_a_count_of_pending_sums_may_begin_with_any_zero(tp_mesh: Any, begun: Callable[[], Tensor]) -> None:
    with typecheck(local=False):
        x, count = typed(torch.randn(4, 3), S(0)), begun()
        for part in (x, x.square()):
            count += part.sum()
        assert spmd.typeof(count).type.get(spmd.normalize_axis("tp")) is P
        with pytest.raises(SpmdTypeError, match="SW113"):
            torch.tensor(1.0) + x.sum()


def test_a_term_of_every_rank_is_one_if_it_is_divided_by_their_number(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x, equal = typed(torch.randn(4, 3), S(0)), typed(torch.randn(()), R)
        assert exponent(x.sum() + equal / dist.get_world_size()) == 0
        assert exponent(x.sum() / 8 + equal / dist.get_world_size()) == 0, "8 may be anything"
        assert exponent(x.mean() + equal) == 1
        assert exponent(x.mean() + 0.5) == 1
        for wrong in (
            lambda: x.sum() + equal,
            lambda: x.sum() / 8 + equal,
            lambda: x.sum() / 8 + equal / 8,
            lambda: x.mean() + equal / dist.get_world_size(),
            lambda: x.sum() + 0.5,
        ):
            with pytest.raises(SpmdTypeError, match="SW113"):
                wrong()
        share = equal / dist.get_world_size()
        dist.all_reduce(share)
        assert exponent(share) == 0
        dist.all_reduce(equal)
        equal /= dist.get_world_size()
        assert exponent(equal) == 0


def test_what_is_off_the_scale_is_refused_where_it_matters(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x, equal = typed(torch.randn(4, 3), S(0)), typed(torch.randn(()), R)
        large = spmd.all_reduce(x.mean(), "tp", src=P, dst=R)
        for code, wrong in {
            "SW150": lambda: large + equal,
            "SW151": lambda: large.exp(),
            "SW152": lambda: spmd.assert_type(large, {"tp": R}),
        }.items():
            with pytest.raises(SpmdTypeError, match=code):
                wrong()
        unknown = large / 4
        assert exponent(unknown + equal) == 0
        unknown.exp()
        spmd.assert_type(unknown, {"tp": R})
        assert exponent(spmd.all_reduce(x.mean(), "tp", src=P, dst=R, op="avg") + equal) == 0


def test_what_is_called_by_a_name_is_what_one_device_has(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = typed(torch.randn(4, 3), S(0))
        total = spmd.all_reduce(x.sum(), "tp", src=P, dst=R)
        for right in (total, x, x.mean(), x.sum() / dist.get_world_size(), total / 4, torch.ones(3)):
            assert spmd.checkpoint_value("right", right) is right
        for wrong, said in {
            total / dist.get_world_size(): "loss is R/n on axis tp",
            x * dist.get_world_size(): "loss is V*n on axis tp",
            spmd.all_reduce(x.mean(), "tp", src=P, dst=R): "loss is R*n on axis tp",
        }.items():
            with pytest.raises(SpmdTypeError, match=re.escape(said)) as refused:
                line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
                spmd.checkpoint_value("loss", wrong)
            assert refused.value.finding.code == "SW152"
            at = refused.value.finding.location
            assert at is not None
            assert (at.file, at.line) == (__file__, line)


FUSED: list[tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = [
    ("addmm", lambda bias, x, y: torch.addmm(bias, x, y)),
    ("addbmm", lambda bias, x, y: torch.addbmm(bias, x[None], y[None])),
    ("baddbmm", lambda bias, x, y: torch.baddbmm(bias[None], x[None], y[None])),
    ("linear", lambda bias, x, y: F.linear(x, y.t(), bias[0])),
    ("add", lambda bias, x, y: bias + x @ y),
]


@pytest.mark.parametrize("call", [pytest.param(case[1], id=case[0]) for case in FUSED])
def test_a_product_over_a_sharded_dim_is_on_the_scale_of_one_device(
    tp_mesh: Any, call: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> None:
    with typecheck(local=False):
        x, y = typed(torch.randn(3, 2), S(1)), typed(torch.randn(2, 5), S(0))
        assert exponent(call(typed(torch.randn(3, 5), P), x, y)) == 0
        assert exponent(call(typed(torch.randn(3, 5), R) / dist.get_world_size(), x, y)) == 0
        with pytest.raises(SpmdTypeError, match="SW150"):
            call(typed(torch.randn(3, 5), P("avg")), x, y)


def test_every_result_has_a_scale_of_its_own(tp_mesh: Any) -> None:
    with typecheck():
        large, equal = typed(torch.rand(4), P("avg")), typed(torch.rand(3), R)
        assert [exponent(grid) for grid in torch.meshgrid(large, equal, indexing="ij")] == [1, 0]
        large = spmd.all_reduce(large, "tp", src=P, dst=R)
        for found in (large.sort(), large.topk(2), large.max(0), large.cummax(0)):
            assert [exponent(part) for part in found] == [1, 0], "positions do not grow"
        assert exponent(large.median()) == 1


STEPS: list[tuple[str, Callable[[Tensor], Tensor], Any, bool]] = [
    ("mean, summed", lambda y: y.mean(), dist.ReduceOp.SUM, False),
    ("mean, averaged", lambda y: y.mean(), dist.ReduceOp.AVG, True),
    ("sum, summed", lambda y: y.sum(), dist.ReduceOp.SUM, True),
    ("sum, averaged", lambda y: y.sum(), dist.ReduceOp.AVG, False),
    ("mean over the ranks, summed", lambda y: y.mean() / dist.get_world_size(), dist.ReduceOp.SUM, True),
    ("mean over the ranks, averaged", lambda y: y.mean() / dist.get_world_size(), dist.ReduceOp.AVG, False),
    ("a number that nobody knows", lambda y: y.sum() / 12, dist.ReduceOp.AVG, True),
]


@pytest.mark.parametrize("by_closure", [False, True])
@pytest.mark.parametrize(("loss", "reduction", "right"), [pytest.param(*s[1:], id=s[0]) for s in STEPS])
def test_a_gradient_off_the_scale_stops_at_the_optimizer(
    tp_mesh: Any, loss: Any, reduction: Any, right: bool, by_closure: bool
) -> None:
    weight = spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R})
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def gradients() -> float:
        loss(typed(torch.randn(4, 3), S(0)) @ weight).backward()
        dist.all_reduce(weight.grad, op=reduction)
        return 0.0

    def step() -> None:
        if by_closure:
            optimizer.step(gradients)
        else:
            gradients()
            optimizer.step()

    with typecheck(local=False):
        if right:
            step()
        else:
            with pytest.raises(SpmdTypeError, match=r"SW616.*4 times too"):
                step()


def test_a_gradient_divided_in_place_is_on_the_scale(tp_mesh: Any) -> None:
    weight = spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R})
    with typecheck(local=False):
        (typed(torch.randn(4, 3), S(0)) @ weight).mean().backward()
        dist.all_reduce(weight.grad)
        weight.grad /= dist.get_world_size()
        torch.optim.SGD([weight], lr=0.1).step()


def test_types_keep_their_scale(tp_mesh: Any) -> None:
    axis = spmd.normalize_axis("tp")
    type = TensorType.of({axis: P("avg")})
    assert type is TensorType.of({axis: P}, scale={axis: 1})
    assert type.backward_type().exponent(axis) == -1
    assert type.with_placements({axis: R}).exponent(axis) == 1
    assert type.of_unknown_scale().exponent(axis) is None


@pytest.mark.parametrize(("factor", "is_known"), [(4, False), (0.5, True), (1, True)])
def test_a_sum_of_unknown_scale_is_advised_on_a_condition_and_is_a_choice(
    tp_mesh: Any, factor: float, is_known: bool
) -> None:
    """Where a factor may stand for the sum, as ``load * n``, summing makes it n times too large."""
    collector = Collector()
    with checking(collect=collector):
        x = spmd.assert_type(torch.randn(4).clone(), {"tp": P})
        torch.relu(x * factor)
    (found,) = collector.result().findings
    assert found.code == "SW112"
    summed = [way for way in found.help if "all_reduce" in way]
    assert summed
    assert all(("which is not known" in way) != is_known for way in summed)
    assert all(fix.choice != is_known for fix in found.fixes)
    assert found.fixes


def test_what_the_program_calls_a_term_of_a_sum_is_summed_without_a_condition(tp_mesh: Any) -> None:
    collector = Collector()
    with checking(collect=collector):
        y = spmd.reinterpret(spmd.assert_type(torch.randn(4), {"tp": V}), "tp", src=V, dst=P)
        torch.relu(y)
    (found,) = collector.result().findings
    summed = [way for way in found.help if "all_reduce" in way]
    assert summed
    assert not any("which is not known" in way for way in summed)


def _norm(gradients: list[Tensor]) -> Tensor:
    return torch.stack([gradient.norm() for gradient in gradients]).norm()


def _multiplied(gradients: list[Tensor], factor: Tensor) -> None:
    for gradient in gradients:
        gradient.mul_(factor)


def _adaptively(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        largest = parameter.detach().norm().clamp(min=1e-3) * 100.0
        parameter.grad.mul_((largest / parameter.grad.norm().clamp(min=1e-6)).clamp(max=1.0))


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


CLIPPINGS: list[tuple[str, Callable[[list[nn.Parameter]], object], bool]] = [
    ("of torch", lambda ps: nn.utils.clip_grad_norm_(ps, 1000.0), True),
    ("of torch, one by one", lambda ps: nn.utils.clip_grad_norm_(ps, 999.5, foreach=False), True),
    ("of torch, the largest", lambda ps: nn.utils.clip_grad_norm_(ps, 999.5, norm_type=float("inf")), True),
    ("norm apart", lambda ps: nn.utils.clip_grads_with_norm_(ps, 1e3, nn.utils.get_total_norm(_gradients(ps))), True),
    ("by value", lambda ps: nn.utils.clip_grad_value_(ps, 1000.0), True),
    ("by value, one by one", lambda ps: nn.utils.clip_grad_value_(ps, 999.5, foreach=False), True),
    ("by hand", lambda ps: _multiplied(_gradients(ps), (999.5 / (_norm(_gradients(ps)) + 1e-6)).clamp(max=1.0)), True),
    ("held at 1", lambda ps: _multiplied(_gradients(ps), torch.clip(2e3 / _norm(_gradients(ps)), 0, 1)), True),
    (
        "chosen",
        lambda ps: _multiplied(_gradients(ps), torch.where((norm := _norm(_gradients(ps))) > 999.5, 999.5 / norm, 1.0)),
        True,
    ),
    ("each for itself", _adaptively, True),
    ("normalised", lambda ps: _multiplied(_gradients(ps), 1.0 / _norm(_gradients(ps))), False),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(("clip", "keeps"), [pytest.param(*case[1:], id=case[0]) for case in CLIPPINGS])
def test_a_gradient_off_the_scale_stops_at_the_optimizer_behind_clipping(
    tp_mesh: Any, clip: Callable[[list[nn.Parameter]], object], keeps: bool
) -> None:
    """``keeps``: a fourth of a gradient is a fourth of it behind the clipping, as the numbers say."""

    def parameters() -> list[nn.Parameter]:
        torch.manual_seed(1)
        return [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(()))]

    numbers = []
    for factor in (1.0, 0.25):
        plain = parameters()
        for parameter in plain:
            parameter.grad = parameter.detach() * 3 * factor
        clip(plain)
        numbers.append(torch.cat([gradient.flatten() for gradient in _gradients(plain)]))
    torch.testing.assert_close(numbers[1], numbers[0] * 0.25 if keeps else numbers[0])
    for divided in (False, True):
        typed_ones = [spmd.assert_type(parameter, {"tp": R}) for parameter in parameters()]
        with typecheck(local=False):
            weight, bias = typed_ones
            (typed(torch.randn(4, 3), S(0)) @ weight + bias).sum().backward()
            for parameter in typed_ones:
                dist.all_reduce(parameter.grad)
                if divided:
                    parameter.grad /= dist.get_world_size()
            clip(typed_ones)
            optimizer = torch.optim.SGD(typed_ones, lr=0.1)
            if divided and keeps:
                with pytest.raises(SpmdTypeError, match=r"SW616.*4 times too small"):
                    optimizer.step()
            else:
                optimizer.step()


def test_what_is_declared_has_its_scale_though_nobody_knew_it_before(tp_mesh: Any) -> None:
    with typecheck(local=False):
        rows = (torch.arange(8) % 3 > 0).double().chunk(4)[dist.get_rank()].clone()
        assert exponent(spmd.assert_type(rows, {"tp": S(0)})) == 0
        unknown = typed(torch.randn(4), R) / 12
        assert exponent(unknown) is None
        assert exponent(spmd.assert_type(unknown, {"tp": R})) == 0
        pending = typed(torch.randn(4), P) / 12
        assert exponent(spmd.assert_type(pending, {"tp": P})) is None, "a P says nothing of its scale"


CHOOSING: list[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = [
    ("targets", lambda x, at: F.cross_entropy(x, at % 8)),
    ("lookup", lambda x, at: F.embedding(at % 3, typed(torch.randn(3, 2), R)).mean()),
    ("rows", lambda x, at: (x.gather(1, (at % 8)[:, None])).mean()),
    ("mask", lambda x, at: x.masked_fill((at % 2 == 0)[:, None], 0.0).mean()),
    ("choice", lambda x, at: torch.where((at % 2 == 0)[:, None], x, 0.0).mean()),
]


@pytest.mark.parametrize("call", [pytest.param(case[1], id=case[0]) for case in CHOOSING])
def test_what_chooses_has_no_scale(tp_mesh: Any, call: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Positions that a rank's number has shifted are of no known scale; what they choose from is."""
    with typecheck(local=False):
        x = typed(torch.randn(4, 8), S(0))
        positions = torch.arange(4) + dist.get_rank() * 4
        assert exponent(positions) is None
        assert exponent(call(x, positions)) == 1
        assert exponent(positions.double().square()) is None, "here they are computed with"


CURVED: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("softmax", lambda x: (x / 8).softmax(-1)),
    ("activation", lambda x: F.gelu(x / 8)),
    ("attention", lambda x: F.scaled_dot_product_attention(x / 8, x * 4, x)),
    ("losses", lambda x: F.cross_entropy(x / 8, torch.zeros(len(x), 8, dtype=torch.long), reduction="none")),
]


@pytest.mark.parametrize("call", [pytest.param(case[1], id=case[0]) for case in CURVED])
def test_what_stands_in_a_curved_function_is_taken_for_a_value_of_one_device(
    tp_mesh: Any, call: Callable[[Tensor], Tensor]
) -> None:
    """Nobody knows the scale of what a number divides, and that of the function of it is known again."""
    batch = torch.rand(ROWS, 4, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with typecheck(local=False):
        shard = typed(batch.chunk(4)[0].clone(), S(0))
        assert exponent(shard / 8) is None
        told = call(shard)
        assert exponent(told) == 0
        assert exponent(told.mean()) == 1
        assert exponent((shard / 8).relu()) is None, "which keeps a factor"
    for ranks in (2, 3):
        pieces = [call(piece) for piece in batch.chunk(ranks)]
        torch.testing.assert_close(torch.cat(pieces), call(batch))
        torch.testing.assert_close(sum(piece.mean() for piece in pieces), ranks * call(batch).mean())


def _accumulated() -> Tensor:
    x, w = shard(drawn(4, 3)), whole(drawn(3, seed=1)).requires_grad_()
    spmd.reinterpret((x @ w).square().mean(), "tp", src=V, dst=P).backward()
    held = spmd.assert_type(torch.zeros(3, dtype=torch.float64), {"tp": P})
    held.add_(w.grad)
    return spmd.all_reduce(held, "tp", src=P, dst=R) / dist.get_world_size()


def _slope() -> Tensor:
    w = drawn(3, seed=1).requires_grad_()
    (drawn(4, 3) @ w).square().mean().backward()
    assert w.grad is not None
    return w.grad


@pytest.mark.parametrize("local", [True, False])
def test_zeros_that_are_said_to_be_addends_take_the_scale_of_what_is_added(local: bool) -> None:
    """PowerSGD's error, gradients that are accumulated by hand: zero has every exponent, whatever is said of it."""
    judge(Case("addends of a mean", _accumulated, _slope()), local=local)
