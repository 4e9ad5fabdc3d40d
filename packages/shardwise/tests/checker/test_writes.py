"""In-place and out= calls, views and aliases, setitem, copies."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import V
from shardwise.checker import typecheck

from .helpers import make, place, refused


@pytest.mark.parametrize(
    ("before", "written", "grad", "after"),
    [
        ("R", "R", False, "R"),
        ("R", "V", False, "V"),
        ("R", "V", True, "SW120"),
        ("I", "V", False, "V"),
        ("I", "V", True, "SW101"),
        ("V", "R", False, "V"),
        ("P", "P", False, "P"),
        ("P", "R", False, "SW113"),
        ("P", "V", False, "SW110"),
        ("R", "P", False, "SW113"),
    ],
)
def test_an_in_place_sum_follows_the_functional_rule(
    tp_mesh: Any, before: str, written: str, grad: bool, after: str
) -> None:
    leaf, addend = make(before, grad=grad), make(written)
    with typecheck():
        x = leaf * 1.0 if grad else leaf
        if after.startswith("SW"):
            value = x.detach().clone()
            with refused(after):
                x.add_(addend)
            assert torch.equal(x, value), "a rejected write must not have happened"
            assert place(x) == before
        else:
            assert x.add_(addend) is x
            assert place(x) == after


@pytest.mark.parametrize(
    "write",
    [
        lambda base, v: base[0].copy_(v[0]),
        lambda base, v: base.view(-1)[:4].add_(v[0]),
        lambda base, v: base.__setitem__(0, v[0]),
        lambda base, v: base.t().__setitem__((slice(None), 0), v[0]),
        lambda base, v: torch.chunk(base, 2)[0].mul_(v[:2]),
        lambda base, v: base.detach().copy_(v),
        lambda base, v: base.data.copy_(v),
        lambda base, v: base.unbind(0)[1].copy_(v[0]),
        lambda base, v: base.reshape(2, 8).copy_(v.reshape(2, 8)),
    ],
)
def test_writing_into_a_view_retypes_its_base_and_every_other_view(
    tp_mesh: Any, write: Callable[[Any, Any], Any]
) -> None:
    base, v = make("R"), make("V")
    with typecheck():
        other = base[1:]
        copied = base.clone()
        write(base, v)
        assert place(base) == "V"
        assert place(other) == "V"
        assert place(base + 1) == "V"
        assert place(copied) == "R"


def test_setitem_of_a_partial_into_a_replicate_is_an_error(tp_mesh: Any) -> None:
    x = make("R")
    with typecheck(), refused("SW113"):
        x[0] = make("P", 4)


@pytest.mark.parametrize(
    ("existing", "operands", "expected"),
    [("", "RR", "R"), ("", "VR", "V"), ("R", "VR", "V"), ("V", "RR", "SW120"), ("P", "RR", "SW120"), ("P", "PP", "P")],
)
def test_out_takes_the_type_of_the_result(tp_mesh: Any, existing: str, operands: str, expected: str) -> None:
    out = make(existing) if existing else torch.randn(4, 4)
    a, b = (make(letter) for letter in operands)
    with typecheck():
        if expected.startswith("SW") and existing == "V":
            # V may hold anything, so replicate data is fine there.
            torch.add(a, b, out=out)
            assert place(out) == "V"
        elif expected.startswith("SW"):
            before = out.clone()
            with refused(expected):
                torch.add(a, b, out=out)
            assert torch.equal(out, before)
        else:
            torch.add(a, b, out=out)
            assert place(out) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x.zero_(), "V"),
        (lambda x: x.fill_(1.0), "V"),
        (lambda x: x.copy_(torch.ones(4, 4)), "V"),
        (lambda x: x.clamp_(0, 1), "V"),
        (lambda x: F.relu(x, inplace=True), "V"),
        (lambda x: x.__iadd__(1.0), "V"),
    ],
)
def test_overwriting_with_constants_keeps_the_type(tp_mesh: Any, call: Callable[[Any], Any], expected: str) -> None:
    x = make("V")
    with typecheck():
        call(x)
    assert place(x) == expected


@pytest.mark.parametrize("before", ["R", "P"])
def test_what_has_been_zeroed_is_a_term_of_a_pending_sum(tp_mesh: Any, before: str) -> None:
    counts, addend = make(before), make("P")
    with typecheck():
        counts.zero_()
        counts.add_(addend)
        assert place(counts) == "P"
        with refused("SW112"):
            torch.sign(counts)


@pytest.mark.parametrize("zero", [lambda x: x[:2].zero_(), lambda x: x.mul_(1.0), lambda x: x.zero_().add_(make("R"))])
def test_what_is_not_all_zeros_is_no_term_of_a_pending_sum(tp_mesh: Any, zero: Callable[[Any], Any]) -> None:
    counts, addend = make("R"), make("P")
    with typecheck():
        zero(counts)
        with refused("SW113"):
            counts.add_(addend)


def test_filling_a_partial_sum_with_a_number_is_an_error_and_with_zero_is_not(tp_mesh: Any) -> None:
    x = make("P")
    with typecheck():
        x.zero_()
        assert place(x) == "P"
        with refused("SW120"):
            x.fill_(1.0)


def test_a_parameter_keeps_its_declared_type_through_an_optimizer_step(tp_mesh: Any) -> None:
    model = torch.nn.Linear(4, 4)
    for parameter in model.parameters():
        spmd.assert_type(parameter, {"tp": V})
    x = make("V")
    for foreach in (False, True):
        for optimizer in (
            torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=foreach),
            torch.optim.AdamW(model.parameters(), 0.1, foreach=foreach),
        ):
            with typecheck():
                for _ in range(2):
                    loss = spmd.reinterpret(model(x).sum(), "tp", src=V, dst=spmd.P)
                    loss.backward()
                    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
    assert [place(parameter) for parameter in model.parameters()] == ["V", "V"]


def test_copies_keep_the_type(tp_mesh: Any) -> None:
    x = make("V")
    parameter = spmd.assert_type(torch.nn.Parameter(torch.randn(4)), {"tp": V})
    with typecheck():
        assert place(copy.deepcopy(x)) == "V"
        assert place(copy.deepcopy(parameter)) == "V"
        assert place(copy.copy(x)) == "V"
        assert place(x.data) == "V"
        assert place(x.detach()) == "V"
        file = io.BytesIO()
        torch.save({"x": x}, file)
        file.seek(0)
        assert place(torch.load(file, weights_only=True)["x"]) == "V"


def test_multiple_outputs_all_have_the_type(tp_mesh: Any) -> None:
    x = make("V")
    with typecheck():
        values, indices = x.max(dim=0)
        assert (place(values), place(indices)) == ("V", "V")
        assert [place(part) for part in x.split(1)] == ["V"] * 4
        assert [place(row) for row in x] == ["V"] * 4
        assert place(torch.linalg.svd(x).S) == "V"


def test_swapping_dims_in_place_keeps_the_local_type(tp_mesh: Any) -> None:
    x = make("V", 2, 3)
    with typecheck():
        x.t_()
        assert (place(x), tuple(x.shape)) == ("V", (3, 2))


@pytest.mark.parametrize("fill", [torch.nn.init.zeros_, torch.nn.init.ones_, lambda p: torch.nn.init.constant_(p, 0.1)])
@pytest.mark.parametrize("letter", ["R", "I", "V"])
def test_initialising_with_a_constant_keeps_the_declared_type(tp_mesh: Any, letter: str, fill: Any) -> None:
    parameter = torch.nn.Parameter(torch.empty(4))
    spmd.assert_type(parameter, {"tp": spmd.PerMeshAxisLocalSpmdType(letter)})
    with typecheck():
        fill(parameter)
    assert place(parameter) == letter


@pytest.mark.parametrize("fill", [torch.nn.init.normal_, torch.nn.init.xavier_uniform_, torch.nn.init.trunc_normal_])
def test_initialising_with_random_numbers_is_refused_where_ranks_must_be_equal(tp_mesh: Any, fill: Any) -> None:
    with typecheck():
        fill(make("V"))
        with refused("SW121"):
            fill(make("I"))


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm1d, torch.nn.InstanceNorm1d])
@pytest.mark.parametrize("letter", ["V", "R"])
def test_running_statistics_follow_the_batch_in_training(tp_mesh: Any, norm: Any, letter: str) -> None:
    layer = norm(4, affine=False, track_running_stats=True)
    spmd.assert_type(list(layer.buffers()), {"tp": spmd.R})
    with typecheck():
        layer.eval()(make(letter, 4, 4, 3))
        assert place(layer.running_mean) == "R"
        layer.train()(make(letter, 4, 4, 3))
        assert place(layer.running_mean) == place(layer.running_var) == letter


@pytest.mark.parametrize(
    "write",
    [
        lambda z: z.__setitem__(0, 1.0),
        lambda z: z.__setitem__((slice(None), slice(0, None, 2)), torch.ones(2)),
        lambda z: z.add_(1),
        lambda z: z.view(-1).__setitem__(0, 1),
        lambda z: z[0].fill_(3),
        lambda z: z.T[0].add_(1),
        lambda z: z.data.copy_(torch.ones(4, 4)),
        lambda z: torch.add(z, 1, out=z),
        lambda z: z.exp_(),
        lambda z: z.masked_fill_(torch.eye(4).bool(), 1.0),
        lambda z: z[1:].copy_(make("R")[1:]),
    ],
)
def test_zeros_that_were_written_to_are_no_zeros(tp_mesh: Any, write: Callable[[torch.Tensor], Any]) -> None:
    partial = make("P")
    with typecheck():
        zeros = torch.zeros(4, 4)
        assert place(partial + zeros) == "P"
        write(zeros)
        with refused("SW113"):
            partial + zeros


def test_a_view_taken_before_the_write_knows_of_it(tp_mesh: Any) -> None:
    partial = make("P")
    with typecheck():
        zeros = torch.zeros(8, 4)
        first, second = zeros[:4], zeros[4:]
        first += 1
        with refused("SW113"):
            partial + second


UNKNOWN_WRITES: dict[str, Callable[[Any, Any], object]] = {
    "add_": lambda z, u: z.add_(u),
    "copy_": lambda z, u: z.copy_(u),
    "setitem": lambda z, u: z.__setitem__(0, u[0]),
    "through a view": lambda z, u: z.view(-1)[:4].copy_(u[0]),
    "index_add_": lambda z, u: z.index_add_(0, u.argmax(1), u),
    "scatter_add_": lambda z, u: z.scatter_add_(0, u.argmax(1, keepdim=True).expand(4, 4), u),
    "out=": lambda z, u: torch.mul(u, 2.0, out=z),
    "data": lambda z, u: setattr(z, "data", u),
    "in a hook of a node": lambda z, u: backward_with_a_hook_of_its_node(z, u),
    "in an autograd function": lambda z, u: backward_of_a_function(z, u),
}


def backward_with_a_hook_of_its_node(z: torch.Tensor, u: torch.Tensor) -> None:
    w = torch.ones(4, 4, requires_grad=True)
    node = w.expand_as(w).grad_fn.next_functions[0][0]  # type: ignore[union-attr]  kept, for the hook lives with it
    node.register_hook(lambda *_: list(z.add_(u))[:0] or None)  # type: ignore[union-attr]
    (u @ w).sum().backward()


def backward_of_a_function(z: torch.Tensor, u: torch.Tensor) -> None:
    class Accumulating(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            z.add_(gradient)
            return gradient * 2

    Accumulating.apply((u * 1).requires_grad_()).sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("constant", [torch.zeros, torch.ones], ids=["zeros", "ones"])
@pytest.mark.parametrize("write", UNKNOWN_WRITES.values(), ids=UNKNOWN_WRITES)
def test_a_constant_into_which_something_untyped_is_written_is_no_constant(
    tp_mesh: Any, write: Callable[[Any, Any], object], constant: Callable[..., torch.Tensor]
) -> None:
    untyped = torch.rand(4, 4)
    untyped.__dict__.clear()
    with typecheck(strict_mode="permissive"):
        made = constant(4, 4)
        assert place(made) == "R"
        write(made, untyped)
        assert place(made) == ""
        assert place(made * 2) == ""
        assert place(make("P") + made) == ""
