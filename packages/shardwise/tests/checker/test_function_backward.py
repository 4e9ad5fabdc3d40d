"""The backward of declared autograd functions, against their declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise import I, P, R, S, V, rules
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused


def keep(gradient: torch.Tensor) -> torch.Tensor:
    return gradient


def reduce(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.contiguous().clone()
    dist.all_reduce(gradient)
    return gradient


def gather(gradient: torch.Tensor) -> torch.Tensor:
    gathered = gradient.new_empty(4 * gradient.shape[0], *gradient.shape[1:])
    dist.all_gather_into_tensor(gathered, gradient.contiguous())
    return gathered


def scatter(gradient: torch.Tensor) -> torch.Tensor:
    piece = gradient.new_empty(gradient.shape[0] // 4, *gradient.shape[1:])
    dist.reduce_scatter_tensor(piece, gradient.contiguous())
    return piece


def own_piece(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.chunk(4)[dist.get_rank()]


Body = Callable[[torch.Tensor], torch.Tensor]


def function(rule: Callable[[torch.Tensor], Any], forward_body: Body, backward_body: Body) -> type:
    """An autograd function of one tensor, declared by ``rule``."""

    class Region(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return forward_body(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return backward_body(gradient)

        @staticmethod
        def spmd_typecheck(*, x: torch.Tensor) -> Any:
            return rule(x)

    return Region


def run(region: Any, src: str) -> torch.Tensor:
    """Backward through ``region`` from an invariant loss."""
    x = make(src, 8, 4, grad=True)
    y = region.apply(x * 1)
    kind = place(y)
    if kind == "R":
        y = y * make("V", *y.shape)
    total = y.sum()
    (total if kind == "I" else spmd.all_reduce(total, "tp", src=P if kind == "P" else V, dst=I)).backward()
    return x


COPY: Any = (lambda x: rules.convert(x, "tp", src=I, dst=R), lambda x: x.view_as(x))
SUM: Any = (lambda x: rules.all_reduce(x, "tp", src=P, dst=I), reduce)
GATHER: Any = (lambda x: rules.all_gather(x, "tp", src=V, dst=R), lambda x: gather(x).view(4, *x.shape))
SPLIT: Any = (lambda x: rules.convert(x, "tp", src=I, dst=S(0)), own_piece)
CASES = [
    ("I", *COPY, reduce, ""),
    ("I", *COPY, keep, "a partial sum there, where invariant is wanted"),
    ("P", *SUM, keep, ""),
    ("I", *SPLIT, gather, ""),
    ("I", *SPLIT, lambda gradient: gradient.repeat(4, 1), "varying there, where invariant is wanted"),
    ("V", *GATHER, lambda gradient: scatter(gradient)[0], ""),
]


@pytest.mark.parametrize(("src", "rule", "forward", "backward", "words"), CASES)
def test_a_region_function_returns_the_dual(
    tp_mesh: Any, src: str, rule: Any, forward: Any, backward: Any, words: str
) -> None:
    with typecheck():
        if words:
            with refused("SW607", "Region gives x", words):
                run(function(rule, forward, backward), src)
        else:
            run(function(rule, forward, backward), src)


def test_a_pending_gradient_that_is_cut_by_the_rank_is_told_where_it_is_cut(tp_mesh: Any) -> None:
    with typecheck(), refused("SW110", "gradient", "varying"):
        run(function(*GATHER, lambda gradient: gradient[dist.get_rank()]), "V")


def test_a_sum_of_what_is_equal_is_told_where_it_is_made(tp_mesh: Any) -> None:
    with typecheck(), refused("SW201", "all_reduce", "4"):
        run(function(*SUM, reduce), "P")


@spmd.register_local_autograd_function
class Scaled(torch.autograd.Function):
    """Saves what it makes on its way, which nobody has typed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
        rounded = (x * factor).round()
        ctx.save_for_backward(x, weight, rounded)
        return rounded * weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight, rounded = ctx.saved_tensors
        return gradient * weight, gradient * rounded + 0 * x, None


@spmd.register_local_autograd_function
class Summing(torch.autograd.Function):
    """Says that it does not communicate, and does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return reduce(gradient) * 2


def test_a_local_function_is_right_for_every_type(tp_mesh: Any) -> None:
    with typecheck():
        for letters in ("RR", "VR", "RV", "VV", "II"):
            x, weight = (make(letter, grad=True) for letter in letters)
            y = Scaled.apply(x, weight, 2.0)
            if place(y) == "R":
                y = y * make("V")
            total = y.sum()
            (total if place(total) == "I" else spmd.all_reduce(total, "tp", src=V, dst=I)).backward()
            assert [place(x.grad), place(weight.grad)] == ["P" if letter == "R" else letter for letter in letters]


def test_a_local_function_that_sums_in_backward_is_no_local_one(tp_mesh: Any) -> None:
    with typecheck(), refused("SW607", "Summing gives x", "summed again"):
        spmd.all_reduce((Summing.apply(make("R", grad=True)) * make("V")).sum(), "tp", src=V, dst=I).backward()


def test_tensors_that_a_backward_met_untyped_are_untyped_afterwards(tp_mesh: Any) -> None:
    loose = torch.randn(8, 4)

    def with_loose(gradient: torch.Tensor) -> torch.Tensor:
        return reduce(gradient) + loose

    with typecheck():
        run(function(*COPY, with_loose), "I")
        assert place(loose) == ""
        with refused("SW102", "loose"):
            loose + make("R", 8, 4)


def test_a_second_derivative_goes_through(tp_mesh: Any) -> None:
    x = make("V", grad=True)
    with typecheck():
        y = Scaled.apply(x, make("V", grad=True), 1.0)
        (first,) = torch.autograd.grad(spmd.all_reduce(y.sum(), "tp", src=V, dst=I), x, create_graph=True)
        spmd.all_reduce((first * x).sum(), "tp", src=V, dst=I).backward()
        assert place(x.grad) == "V"


def test_a_finding_of_a_run_that_collects_points_at_the_backward(tp_mesh: Any) -> None:
    collector = Collector()
    with checking(collect=collector):
        run(function(*COPY, keep), "I")
    (finding,) = collector.result().findings
    assert finding.code == "SW607"
    assert finding.location.function.endswith("Region.backward")
    assert "return backward_body(gradient)" in str(finding)
    assert finding.operands[0].location.line != finding.location.line, "where the backward pass was started"


def test_the_line_that_made_the_gradient_is_named(tp_mesh: Any) -> None:
    class Scatter(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(gradient)
            return gradient * 1

        @staticmethod
        def spmd_typecheck(*, x: torch.Tensor) -> Any:
            return rules.convert(x, "tp", src=R, dst=R)

    collector = Collector()
    with checking(collect=collector):
        run(Scatter, "R")
    (finding,) = collector.result().findings
    assert finding.code == "SW607"
    assert finding.location.line - Scatter.backward.__code__.co_firstlineno in (2, 3)


class TestWhatAFunctionTakesBesides:
    """Functions that are declared to be local, and are not that."""

    @pytest.mark.parametrize("place_of_it", ["closure", "class"])
    def test_a_typed_tensor_from_elsewhere_is_an_operand(self, tp_mesh: Any, place_of_it: str) -> None:
        shift = make("V", 8, 4)

        @spmd.register_local_autograd_function
        class Shifted(torch.autograd.Function):
            own = shift

            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x + (shift if place_of_it == "closure" else Shifted.own)

        with typecheck():
            assert place(Shifted.apply(make("R", 8, 4))) == "V"
            with refused("SW101", "Shifted"):
                Shifted.apply(make("I", 8, 4, grad=True))

    def test_random_numbers_for_equal_values_are_told(self, tp_mesh: Any) -> None:
        @spmd.register_local_autograd_function
        class Noise(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x + torch.rand_like(x)

        with typecheck():
            assert place(Noise.apply(make("V"))) == "V"
            with spmd.synchronised_rng("tp"):
                assert place(Noise.apply(make("R"))) == "R"
        with typecheck(), refused("SW121", "Noise"):
            Noise.apply(make("R"))
