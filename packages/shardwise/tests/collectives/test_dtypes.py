"""In which dtypes do collectives run, forward and backward? The documented traces, and the rules for every case."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shardwise import I, P, R, S, V, all_gather, all_reduce, all_to_all, convert, reduce_scatter, reinterpret
from shardwise.collectives.recipe import resolve_dtypes

pytestmark = pytest.mark.usefixtures("tp")

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64
SHORT = {F32: "f32", BF16: "bf16", F64: "f64", torch.int64: "i64"}
EVENTS = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_allgather_base_": "gather",
    "c10d::_reduce_scatter_base_": "rs",
    "c10d::alltoall_base_": "exchange",
    "aten::slice": "slice",
    "aten::new_zeros": "pad",
}


class Trace(TorchDispatchMode):
    """Writes down casts and moves with the dtype that they happen in."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name == "aten::_to_copy" and "dtype" in kwargs:
            self.events.append(f"to {SHORT[kwargs['dtype']]}")
        elif name in EVENTS:
            self.events.append(f"{EVENTS[name]} {SHORT[first_tensor(args).dtype]}")
        return func(*args, **kwargs)


def first_tensor(args: Any) -> Tensor:
    return next(leaf for leaf in torch.utils._pytree.tree_leaves(args) if isinstance(leaf, Tensor))


def trace(call: Callable[..., Tensor], x: Tensor, **options: Any) -> tuple[str, Tensor, Tensor]:
    """``forward | backward``, the result, and the gradient."""
    x.requires_grad_()
    with Trace() as forward:
        y = call(x, "tp", **options)
    with Trace() as backward:
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return f"{', '.join(forward.events)} | {', '.join(backward.events)}", y, grad


TRACES = [
    (all_reduce, {"src": P, "dst": I, "op_dtype": BF16}, "to bf16, all_reduce bf16 | to f32"),
    (
        all_reduce,
        {"src": P, "dst": R, "out_dtype": BF16, "backward_options": {"op_dtype": F32}},
        "all_reduce f32, to bf16 | to f32, all_reduce f32",
    ),
    (all_gather, {"src": S(0), "dst": I, "out_dtype": BF16}, "to bf16, gather bf16 | slice bf16, to f32"),
    (reduce_scatter, {"src": P, "dst": S(0), "out_dtype": BF16}, "rs f32, to bf16 | gather bf16, to f32"),
    (convert, {"src": R, "dst": S(0), "out_dtype": BF16}, "slice f32, to bf16 | pad bf16, slice bf16, to f32"),
    (
        convert,
        {"src": I, "dst": R, "op_dtype": BF16, "backward_options": {"op_dtype": F32}},
        "to bf16 | to f32, all_reduce f32",
    ),
    (
        all_gather,
        {"src": S(0), "dst": R, "op_dtype": BF16, "backward_options": {"op_dtype": F32}},
        "to bf16, gather bf16 | to f32, rs f32",
    ),
    (reinterpret, {"src": V, "dst": P, "backward_options": {"op_dtype": BF16}}, " | to bf16, to f32"),
]


@pytest.mark.parametrize(("call", "options", "expected"), TRACES)
def test_the_documented_traces(call: Callable[..., Tensor], options: dict[str, Any], expected: str):
    assert trace(call, torch.zeros(8, 4), **options)[0] == expected


CALLS = [
    (all_reduce, {"src": P, "dst": R}, "all_reduce", "all_reduce"),
    (all_reduce, {"src": P, "dst": I}, "all_reduce", None),
    (all_gather, {"src": S(0), "dst": R}, "gather", "rs"),
    (all_gather, {"src": V, "dst": R}, "gather", "rs"),
    (all_gather, {"src": S(0), "dst": I}, "gather", None),
    (reduce_scatter, {"src": P, "dst": S(0)}, "rs", "gather"),
    (all_to_all, {"src": S(0), "dst": S(1)}, "exchange", "exchange"),
    (convert, {"src": I, "dst": R}, None, "all_reduce"),
    (convert, {"src": I, "dst": S(0)}, None, "gather"),
    (convert, {"src": R, "dst": S(0)}, None, None),
    (reinterpret, {"src": I, "dst": V}, None, "all_reduce"),
]
SHRINKING = {"all_reduce", "rs"}


def expected_op_dtype(
    given: torch.dtype, op: torch.dtype | None, out: torch.dtype | None, shrinks: bool
) -> torch.dtype:
    if op is not None:
        return op
    if out is None or shrinks:
        return given
    return min(given, out, key=lambda dtype: torch.finfo(dtype).bits)


COMBINATIONS = list(itertools.product((F32, BF16, F64), (None, F32, BF16), (None, F32, BF16, F64), (F32, BF16, F64)))


@pytest.mark.parametrize(("given", "op", "out", "backward_op"), COMBINATIONS)
def test_the_rules_hold_for_every_combination(given: Any, op: Any, out: Any, backward_op: Any):
    for call, options, forward_event, backward_event in CALLS:
        options = {**options, "op_dtype": op, "out_dtype": out, "backward_options": {"op_dtype": backward_op}}
        events, y, grad = trace(call, torch.zeros(8, 4, dtype=given), **options)
        forward, backward = events.split(" | ")
        assert y.dtype == (out or op or given)
        assert grad.dtype == given
        if forward_event is not None:
            wire = expected_op_dtype(given, op, out, forward_event in SHRINKING)
            assert f"{forward_event} {SHORT[wire]}" in forward.split(", ")
        if backward_event is not None:
            assert f"{backward_event} {SHORT[backward_op]}" in backward.split(", ")


@pytest.mark.parametrize(
    ("given", "out", "shrinks", "expected"),
    [
        (torch.int64, torch.int32, False, torch.int32),
        (torch.int32, torch.int64, False, torch.int32),
        (torch.int64, torch.int32, True, torch.int64),
        (torch.int32, torch.float64, False, torch.int32),
        (torch.complex128, torch.complex64, False, torch.complex64),
    ],
)
def test_integers_and_complex_numbers_have_widths_too(given: Any, out: Any, shrinks: bool, expected: Any):
    assert resolve_dtypes(given, None, out, shrinks=shrinks) == (expected, out)


def test_integers_are_cast_around_a_collective():
    y = all_gather(torch.zeros(2, dtype=torch.int64), "tp", src=S(0), dst=R, out_dtype=torch.int32)
    assert y.dtype == torch.int32


def test_nested_backward_options_reach_the_second_backward():
    x = torch.zeros(8, 4, requires_grad=True)
    options = {"op_dtype": F32, "backward_options": {"op_dtype": BF16}}
    y = all_reduce(x, "tp", src=P, dst=R, backward_options=options)
    c = torch.ones_like(y, requires_grad=True)
    (grad,) = torch.autograd.grad(y, x, c, create_graph=True)
    with Trace() as second:
        torch.autograd.grad(grad, c, torch.ones_like(grad))
    assert second.events == ["to bf16", "all_reduce bf16", "to f32"]
