"""What torch.func's derivatives are: types go in and out of the transforms, and each rank derives its own output."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.distributed.device_mesh import init_device_mesh
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

import shardwise as spmd
from shardwise import I, R, S, V
from shardwise.checker import typecheck
from shardwise.interop.tensors.tagging import type_of
from shardwise.worlds.world import run_processes

from .helpers import make, place, refused


@pytest.mark.parametrize("letter", ["R", "I", "V", "P"])
def test_a_transform_hands_the_type_of_its_argument_in(tp_mesh: Any, letter: str) -> None:
    seen = []
    with typecheck():
        vjp(lambda x: seen.append(place(x)) or x * 2, make(letter))
    assert seen == [letter]


@pytest.mark.parametrize(
    ("x", "weight", "gradient"),
    [("V", "V", "V"), ("V", "R", "V"), ("I", "I", "I"), ("P", "R", "R")],
)
def test_the_gradient_of_an_argument(tp_mesh: Any, x: str, weight: str, gradient: str) -> None:
    with typecheck():
        derivative, value = grad_and_value(lambda x, w: (x @ w).sum())(make(x), make(weight))
    assert place(derivative) == gradient
    assert place(value) == x


def test_the_gradient_of_a_replicate_argument_varies_with_the_loss(tp_mesh: Any) -> None:
    with typecheck():
        assert place(grad(lambda w, x: (x @ w).sum())(make("R"), make("V"))) == "V"


def test_per_sample_gradients_vary(tp_mesh: Any) -> None:
    with typecheck():
        each = vmap(grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))(make("R"), make("V", 3, 4, 4))
        assert place(each.flatten(1).norm(dim=1)) == "V"


def test_a_pullback_gives_duals(tp_mesh: Any) -> None:
    with typecheck():
        out, pull = vjp(lambda w, x: x @ w, make("R"), make("V"))
        w, x = pull(torch.ones_like(out))
    assert (place(w), place(x)) == ("P", "V")


def test_parameters_of_a_functional_call_keep_their_types(tp_mesh: Any) -> None:
    model = torch.nn.Linear(4, 4)
    parameters = {"weight": make("R"), "bias": make("R", 4)}
    with typecheck():
        gradients = grad(lambda p, x: functional_call(model, p, (x,)).square().sum())(parameters, make("V"))
    assert {name: place(gradient) for name, gradient in gradients.items()} == {"weight": "V", "bias": "V"}


def test_every_rank_may_differentiate_by_a_constant(tp_mesh: Any) -> None:
    with typecheck():
        assert jacrev(torch.sin)(torch.ones(2)).shape == (2, 2)


def test_a_replicated_loss_is_refused_as_in_backward(tp_mesh: Any) -> None:
    with typecheck(), refused("SW601"):
        grad(lambda x: x.sum())(make("R"))


def test_outside_a_check_nothing_is_typed() -> None:
    assert not spmd.has_local_type(grad(lambda x: x.sum())(torch.ones(2)))


def direction(letter: str, *shape: int) -> torch.Tensor:
    """Ones, or a tensor of the placement ``letter``."""
    return torch.ones(*(shape or (4, 4))) if letter == "1" else make(letter, *shape)


def line(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(-1)


COTANGENTS = {"R": "PV", "I": "1RI", "V": "1RIV", "P": "1RI"}
"""For every placement of a result, what may be given as its gradient. The dual, and equal values as a list."""
PULLBACKS = {
    "autograd.grad": lambda x, seed: torch.autograd.grad(line(x.requires_grad_()), x, seed)[0],
    "vjp": lambda x, seed: vjp(line, x)[1](seed)[0],
    "functional.vjp": lambda x, seed: torch.autograd.functional.vjp(line, x, seed)[1],
}


@pytest.mark.parametrize("pull", PULLBACKS.values(), ids=PULLBACKS)
@pytest.mark.parametrize("seed", "1RIVP")
@pytest.mark.parametrize("letter", COTANGENTS)
def test_a_cotangent_is_of_the_dual_type(tp_mesh: Any, letter: str, seed: str, pull: Any) -> None:
    with typecheck():
        if seed in COTANGENTS[letter]:
            x = make(letter)
            expected = type_of(x).backward_type()
            assert place(pull(x, direction(seed, 4))) == repr(expected.get(spmd.normalize_axis("tp")))
        else:
            with refused("SW606"):
                pull(make(letter), direction(seed, 4))


TANGENTS = {"R": "1RI", "I": "1RI", "V": "1RIV", "P": "PV"}
"""For every placement of a tensor, what may be given as its tangent: its own kind of value."""


def with_dual_level(x: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(line(forward_ad.make_dual(x, tangent))).tangent


PUSHFORWARDS = {
    "forward_ad": with_dual_level,
    "jvp": lambda x, tangent: jvp(line, (x,), (tangent,))[1],
    "linearize": lambda x, tangent: linearize(line, x)[1](tangent),
    "functional.jvp": lambda x, tangent: torch.autograd.functional.jvp(line, x, tangent)[1],
}


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("push", PUSHFORWARDS.values(), ids=PUSHFORWARDS)
@pytest.mark.parametrize("letter", TANGENTS)
def test_a_tangent_has_the_type_of_its_tensor(tp_mesh: Any, letter: str, push: Any) -> None:
    with typecheck():
        assert place(push(make(letter), make(letter))) == letter


@pytest.mark.parametrize("push", [with_dual_level, PUSHFORWARDS["jvp"]], ids=["forward_ad", "jvp"])
@pytest.mark.parametrize("tangent", "1RIVP")
@pytest.mark.parametrize("letter", TANGENTS)
def test_a_tangent_of_another_type_is_refused(tp_mesh: Any, letter: str, tangent: str, push: Any) -> None:
    allowed = tangent in TANGENTS[letter]
    with typecheck(), contextlib.nullcontext() if allowed else refused("SW630"):
        push(make(letter), direction(tangent))


SECOND = {"hessian": hessian, "functional.hessian": lambda f: lambda x: torch.autograd.functional.hessian(f, x)}


@pytest.mark.parametrize("second", SECOND.values(), ids=SECOND)
@pytest.mark.parametrize("letter", "RIV")
def test_a_second_derivative_obeys_the_law_of_the_first(tp_mesh: Any, letter: str, second: Any) -> None:
    def curved(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum()

    with typecheck(), contextlib.nullcontext() if letter != "R" else pytest.raises(spmd.SpmdTypeError):
        assert place(second(curved)(make(letter))) == letter


JACOBIANS = [
    (jacfwd, "I", None), (jacfwd, "S", "SW405"), (jacrev, "I", None), (jacrev, "S", "SW405"), (hessian, "S", "SW405"),
]  # fmt: skip


@pytest.mark.parametrize(("derive", "letter", "code"), JACOBIANS)
def test_globally_no_jacobian_lists_the_elements_of_a_shard(tp_mesh: Any, derive: Any, letter: str, code: Any) -> None:
    x = spmd.assert_type(torch.randn(3), {"tp": S(0) if letter == "S" else I})
    scalar = derive is hessian
    with typecheck(local=False), contextlib.nullcontext() if code is None else refused(code):
        derive(lambda x: x.sin().sum() if scalar else x.sin())(x)


def summed(x: torch.Tensor) -> torch.Tensor:
    return spmd.all_reduce((x * x).sum(-1), "tp", src=V, dst=I)


def gathered(x: torch.Tensor) -> torch.Tensor:
    return spmd.all_gather(x * x, "tp", src=S(0), dst=R).sum(-1)


def exchanged(x: torch.Tensor) -> torch.Tensor:
    return spmd.all_to_all(x * x, "tp", src=S(0), dst=S(1)).sum(-1)


def scattered(x: torch.Tensor) -> torch.Tensor:
    return spmd.reduce_scatter(x * x, "tp", src=V, dst=S(0)).sum(-1)


def copied(x: torch.Tensor) -> torch.Tensor:
    return spmd.convert(spmd.all_reduce(x * x, "tp", src=V, dst=I), "tp", src=I, dst=S(0)).sum(-1)


def in_place(x: torch.Tensor) -> torch.Tensor:
    return spmd.all_reduce(x * x, "tp", src=V, dst=I, inplace=True)


TRANSITIONS = [summed, gathered, exchanged, scattered, copied, in_place]


def derivatives() -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """What each derivative of each transition is on this rank, and what it should be."""
    found = []
    with spmd.set_current_mesh(init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))):
        x = torch.arange(16.0).reshape(4, 4) / 8 + torch.distributed.get_rank()
        tangent = (x + 1).sin()
        both = torch.stack([x, x + 3], 1)
        for through in TRANSITIONS:
            y = through(leaf := x.clone().requires_grad_())
            seed = torch.ones_like(y)
            step = 1e-2
            slope = (through(x + step * tangent) - through(x - step * tangent)) / (2 * step)
            each = torch.stack([through(row) for row in both.unbind(1)])
            found += [
                (f"vjp of {through.__name__}", vjp(through, x)[1](seed)[0], torch.autograd.grad(y, leaf, seed)[0]),
                (f"jvp of {through.__name__}", jvp(through, (x,), (tangent,))[1], slope),
                (f"vmap of {through.__name__}", vmap(through, in_dims=1)(both), each),
            ]
    return found


@pytest.mark.processes  # forward-mode levels belong to a whole process, so threads cannot be the ranks
def test_collectives_inside_transforms_agree_with_autograd_and_finite_differences() -> None:
    for found in run_processes(derivatives, 2):
        assert len(found) == 3 * len(TRANSITIONS)
        for name, made, expected in found:
            torch.testing.assert_close(
                made, expected, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )


JACOBIANS = {
    "of a function": jacrev(torch.sin),
    "of each slice": vmap(jacrev(torch.sin)),
    "of each slice, in chunks": vmap(jacrev(torch.sin, chunk_size=1)),
    "by each slice of what is mapped inside": jacrev(lambda x: vmap(torch.sum)(x)),
}


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("jacobian", JACOBIANS.values(), ids=JACOBIANS)
def test_the_directions_of_a_jacobian_are_cotangents_under_vmap_too(tp_mesh: Any, jacobian: Any, local: bool) -> None:
    with typecheck(local=local):
        assert place(jacobian(make("I"))) == "I"
        with refused("SW606"):
            jacobian(make("R"))


def test_the_jacobian_of_what_each_rank_has_of_its_own_is_its_own(tp_mesh: Any) -> None:
    own, addend = make("V"), make("P")
    with typecheck():
        for weight in ("R", "V"):
            assert place(jacrev(lambda w: own @ w)(make(weight))) == "V"
        assert place(jacrev(lambda w: addend @ w)(make("R"))) == "P"


def test_the_jacobians_of_the_slices_of_a_shard_are_its_slices(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = spmd.assert_type(torch.rand(2, 3), {"tp": S(0)})
        found = spmd.typeof(vmap(jacrev(torch.sin))(x)).type
        assert str(found.spec) == "PartitionSpec(tp, None, None)"
