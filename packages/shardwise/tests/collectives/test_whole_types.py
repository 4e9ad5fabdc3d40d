"""``redistribute`` between whole types on all ranks: values and gradients against cutting what one device has.

The layouts and what they mean are written without the planner (tests/planner/layouts.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from shardwise import I, P, PartitionSpec, R, S, SpmdType, V, redistribute, set_current_mesh
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import InProcessWorld, ProcessWorld, World

from ..planner import layouts

NAMES = ("a", "b", "c")


def written(type: TensorType, ndim: int) -> SpmdType:
    """The type as a program gives it."""
    return SpmdType(dict(type.local), type.spec or PartitionSpec(*[None] * ndim))


def assert_moves(
    world: World,
    sizes: tuple[int, ...],
    shape: tuple[int, ...],
    pairs: Sequence[tuple[TensorType, TensorType]],
    flatten: bool,
) -> None:
    """Every pair on all ranks: the result denotes the value, and the gradient that of the result, exactly."""
    axes = layouts.axes_of(sizes)
    generator = torch.Generator().manual_seed(7)
    value, cotangent = (torch.randint(-8, 8, shape, generator=generator).double() for _ in range(2))
    local = {src: layouts.represent(value, src, axes, 1) for src, _ in pairs}
    above = {dst: layouts.represent(cotangent, dst.backward_type(), axes, 2) for _, dst in pairs}

    def program() -> list[tuple[Tensor, Tensor]]:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=NAMES[: len(sizes)])
        for names in itertools.combinations(NAMES[: len(sizes)], 2) if flatten else ():
            mesh[names]._flatten()
        rank, found = dist.get_rank(), []
        with set_current_mesh(mesh):
            for src, dst in pairs:
                x = local[src][rank].clone().requires_grad_()
                y = redistribute(x, written(src, len(shape)), written(dst, len(shape)), shape=shape)
                (gradient,) = torch.autograd.grad(y, x, above[dst][rank].clone())
                found.append((y.detach(), gradient))
        return found

    results = world.run(program)
    for (src, dst), *of_ranks in zip(pairs, *results, strict=True):
        moved = layouts.denote([y for y, _ in of_ranks], dst, axes, shape)
        torch.testing.assert_close(moved, value, rtol=0, atol=0, msg=lambda m, s=src, d=dst: f"{s} -> {d}: {m}")
        gradient = layouts.denote([g for _, g in of_ranks], src.backward_type(), axes, shape)
        torch.testing.assert_close(gradient, cotangent, rtol=0, atol=0, msg=lambda m, s=src, d=dst: f"{s} -> {d}: {m}")


def pairs_of(sizes: tuple[int, ...], ndim: int, step: int = 1, first: int = 0) -> list[tuple[TensorType, TensorType]]:
    types = layouts.all_types(layouts.axes_of(sizes), ndim)
    return list(itertools.product(types, types))[first::step]


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", [(4,), (4, 8), (5, 7)], ids=str)
def test_every_pair_of_types_over_two_axes(shape):
    assert_moves(InProcessWorld(4), (2, 2), shape, pairs_of((2, 2), len(shape)), flatten=False)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(12,), (7, 5)], ids=str)
def test_axes_of_other_sizes(shape):
    assert_moves(InProcessWorld(6), (2, 3), shape, pairs_of((2, 3), len(shape), 3), flatten=False)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("flatten", [False, True])
def test_three_axes_with_and_without_groups_over_two_of_them(flatten):
    assert_moves(InProcessWorld(8), (2, 2, 2), (8, 8), pairs_of((2, 2, 2), 2, 131, flatten), flatten)


@pytest.mark.processes
def test_real_processes():
    assert_moves(ProcessWorld(4), (2, 2), (4, 6), pairs_of((2, 2), 2, 41), flatten=False)


def over_two_axes(move):
    """What ``move`` returns on the four ranks of a mesh of a=2, b=2."""

    def program():
        with set_current_mesh(init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))):
            return move()

    return InProcessWorld(4).run(program)


def test_extrema_and_averages_are_discharged():
    def move():
        x = torch.full((4,), float(dist.get_rank()))
        most = redistribute(x, {"a": P("max"), "b": P("max")}, {"a": R, "b": S(0)})
        mean = redistribute(x, {"a": P("avg"), "b": V}, {"a": R, "b": V})
        return most.tolist(), mean.tolist()

    found = over_two_axes(move)
    assert [most for most, _ in found] == [[3.0, 3.0]] * 4
    assert [mean[0] for _, mean in found] == [1.0, 2.0, 1.0, 2.0]


def test_a_narrow_dtype_is_summed_in_the_one_that_is_given():
    def move():
        x = torch.ones(4, 4, dtype=torch.bfloat16, requires_grad=True)
        y = redistribute(
            x, {"a": P, "b": P}, {"a": S(0), "b": R},
            op_dtype=torch.float32, backward_options={"op_dtype": torch.float32},
        )  # fmt: skip
        y.float().sum().backward()
        return y.dtype, y.tolist(), x.grad.dtype

    assert over_two_axes(move) == [(torch.bfloat16, [[4.0] * 4] * 2, torch.bfloat16)] * 4


def test_gradients_of_gradients_go_through_the_steps_again():
    def move():
        x = torch.arange(8.0, dtype=torch.float64).reshape(2, 4).requires_grad_()
        y = redistribute(x, PartitionSpec(("a", "b"), None), PartitionSpec(("b", "a"), None))
        (first,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), x)
        return torch.equal(first, 2 * x), torch.equal(second, 8 * x)

    assert over_two_axes(move) == [(True, True)] * 4


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (({"a": S(0), "b": R}, {"a": R}), {}, "do not speak of the same axes"),
        (({"a": S(0), "b": R},), {"dst_spec": None}, "a whole type before and one after"),
        (({"a": S(0), "b": R}, {"a": R, "b": R}), {"shape": (10, 4)}, "this rank holds"),
        (({"a": S(0), "b": R}, {"a": R, "b": R}), {"max_bytes": 8}, "max_bytes=8 cannot be kept"),
        (({"a": S(0), "b": R}, {"a": R, "b": R}), {"bandwidth": {"a": -1}}, "the bandwidth of a is a number"),
        (({"a": V, "b": R}, {"a": R, "b": R}), {}, "does not say what the whole is"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(arguments, options, said):
    def move():
        with pytest.raises((ValueError, TypeError, RuntimeError), match=said):
            redistribute(torch.ones(4, 4), *arguments, **options)

    over_two_axes(move)


def test_i_and_r_are_kept_apart_in_the_gradient():
    def move():
        x = torch.ones(4, requires_grad=True)
        kept = redistribute(x, {"a": I, "b": R}, {"a": R, "b": R})
        (gradient,) = torch.autograd.grad(kept.sum(), x)
        return gradient.tolist()

    assert over_two_axes(move) == [[2.0] * 4] * 4
