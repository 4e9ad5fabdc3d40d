"""Is a backward that is wrong on one rank already found by verify, at its line, and is another gradient left alone?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import Function

import shardwise as spmd
from shardwise.diagnostics.result import ExitCode
from shardwise.oracle.derivative import wrong_derivative_of
from shardwise.oracle.function_runs import FunctionRuns
from shardwise.verifier.run import verify

Body = Callable[..., Any]


def function(forward: Body, backward: Body) -> Any:
    """Of one tensor; backward is given it and the gradient."""

    class Plain(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return backward(ctx.saved_tensors[0], gradient)

    return Plain


RIGHT = [
    ("square", lambda x: x * x, lambda x, g: 2 * x * g),
    ("linear", lambda x: x.flip(0), lambda x, g: g.flip(0)),
    ("relu", lambda x: x.clamp(min=0), lambda x, g: g * (x > 0)),
    ("exp, large", lambda x: (5 * x).exp(), lambda x, g: 5 * (5 * x).exp() * g),
    ("sum", lambda x: x.sum(0), lambda x, g: g.expand(x.shape)),
    ("softmax", lambda x: x.softmax(-1), lambda x, g: (s := x.softmax(-1)) * (g - (g * s).sum(-1, keepdim=True))),
    ("float32 inside", lambda x: (x.float() ** 2).to(x.dtype), lambda x, g: 2 * x * g),
]
ANOTHER = [
    ("rounding", lambda x: x.round(), lambda x, g: g),
    ("rounding to a scale", lambda x: (x * (4 / x.abs().max())).round() * x.abs().max() / 4, lambda x, g: g),
    (
        "float8",
        lambda x: (x * (448 / x.abs().max())).to(torch.float8_e4m3fn).to(x.dtype) / (448 / x.abs().max()),
        lambda x, g: g,
    ),
    ("sign, clipped", lambda x: x.sign(), lambda x, g: g * (x.abs() < 1)),
    ("reversal", lambda x: x.view_as(x), lambda x, g: -g),
    ("scaled gradient", lambda x: x.clone(), lambda x, g: 0.5 * g),
    ("bfloat16 inside", lambda x: (x.bfloat16() * x.bfloat16()).to(x.dtype), lambda x, g: 2 * x * g),
]
WRONG = [
    ("factor", lambda x: x * x, lambda x, g: x * g),
    ("sign", lambda x: x.sin(), lambda x, g: -x.cos() * g),
    ("a term", lambda x: x.softmax(-1), lambda x, g: x.softmax(-1) * g),
    ("not flipped", lambda x: x.flip(0), lambda x, g: g),
    ("mean as sum", lambda x: x.mean(0), lambda x, g: g.expand(x.shape)),
    ("noise that backward forgets", lambda x: x * torch.rand_like(x), lambda x, g: g),
    ("mask of the other side", lambda x: x.clamp(min=0), lambda x, g: g * (x < 0)),
]


def wrong(forward: Body, backward: Body) -> Any:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(5)).requires_grad_()
    cls = function(forward, backward)
    runs = FunctionRuns(cls, [x * 1], cls.apply, 0)
    return wrong_derivative_of(runs, [x])


@pytest.mark.parametrize("case", [*RIGHT, *ANOTHER], ids=lambda case: case[0])
def test_right_ones_and_other_gradients_are_left_alone(case):
    assert wrong(*case[1:]) is None


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[0])
def test_wrong_ones_are_found(case):
    found = wrong(*case[1:])
    assert found.operand == 0
    assert found.forward != pytest.approx(found.backward, rel=1e-3)


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 2 * x**2


class MeantCube(Cube):
    pass


spmd.register_straight_through(MeantCube)


def program_of(cls: Any) -> Callable[[], Any]:
    def program() -> Any:
        torch.manual_seed(0)
        w = torch.nn.Parameter(torch.randn(4))
        loss = cls.apply(w).sum()
        loss.backward()
        return loss.detach()

    return program


@pytest.mark.processes
def test_verify_names_the_function_and_the_line():
    verdict = verify(program_of(Cube), {"dp": 2}, strict=False)
    (finding,) = [finding for finding in verdict.types.findings if finding.code == "SW310"]
    assert "the backward of Cube is not the derivative of its forward with respect to x" in finding.message
    lines, start = inspect.getsourcelines(Cube.backward)
    assert finding.location.line == start + len(lines) - 1
    assert verdict.exit_code is ExitCode.FINDINGS


@pytest.mark.processes
def test_verify_leaves_a_declared_one_alone():
    verdict = verify(program_of(MeantCube), {"dp": 2}, strict=False)
    assert [finding.code for finding in verdict.types.findings] == []


def test_only_autograd_functions_can_be_declared():
    with pytest.raises(TypeError, match="register_straight_through takes a subclass"):
        spmd.register_straight_through(int)


class Box:
    """What a function leaves something in, for the next one to take."""


def test_what_is_left_in_an_argument_stays_there():
    class Leaves(Function):
        @staticmethod
        def forward(ctx: Any, box: Box, x: torch.Tensor) -> torch.Tensor:
            box.left = x  # type: ignore[attr-defined]
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
            return None, 2 * gradient

    box, x = Box(), torch.ones(3, requires_grad=True)
    apply: Any = Leaves.apply
    apply(box, x)
    assert wrong_derivative_of(FunctionRuns(Leaves, [box, x], apply, 0), [x]) is None
    assert box.left is x  # type: ignore[attr-defined]
