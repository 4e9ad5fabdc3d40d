"""How a transition runs, and how autograd sees it: one autograd.Function, whose backward is another transition.

Because the table of transitions is closed under taking gradients, ``TransitionFunction`` applied to the partner recipe
is the whole backward, and applying it again is the double backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.compiler import is_compiling

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.interop.communication import wire
from shardwise.interop.communication.process_groups import Communicator
from shardwise.interop.running.recording import narrow_sum_heard
from shardwise.interop.torch_compat import transforms_active
from shardwise.types.aliases import BackwardOptions, DeviceMeshAxis
from shardwise.types.placement import PerMeshAxisSpmdType

from .recipe import Recipe, demand_reduction_dtype, freeze_options, make_recipe
from .request import Request

_recipes: dict[tuple[object, ...], Recipe] = {}
"""By the fields of a ``Request``: a plain tuple is made and compared in less time."""


Common = tuple[torch.dtype | None, torch.dtype | None, bool, BackwardOptions | None]
"""What every collective and coercion takes: op_dtype, out_dtype, async_op, backward_options."""


def recipe_for(
    op: str,
    x: Tensor,
    axis: DeviceMeshAxis,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    common: Common,
    *,
    dim: int | None = None,
    other_dim: int | None = None,
    expert_mode: bool = False,
) -> Recipe:
    """The recipe of a call, made once for every ``Request``; ``axis`` serves error texts only."""
    op_dtype, out_dtype, async_op, backward_options = common
    options = None if backward_options is None else freeze_options(backward_options)
    key = (op, src, dst, x.dtype, x.ndim, dim, other_dim, op_dtype, out_dtype, async_op, options, expert_mode)
    if is_compiling():
        return make_recipe(axis, Request(*key))
    try:
        return _recipes[key]
    except KeyError:
        made = _recipes[key] = make_recipe(axis, Request(*key))
        return made
    except TypeError:  # an unhashable src or dst: let the recipe say what is wrong with it
        return make_recipe(axis, Request(*key))


def forget_recipes() -> None:
    """Every recipe is made anew from here on; for those who change what recipes do."""
    _recipes.clear()


def perform(x: Tensor, recipe: Recipe, comm: Communicator, sizes: object = None) -> Tensor:
    """Check the operand's sizes, then run the recipe; through autograd if ``x`` takes part in it."""
    if recipe.check is not None:
        recipe.check(x, recipe, comm, sizes)
    if recipe.way != wire.TRACED and transforms_active():
        return _apply_transformed(x, (recipe, comm, sizes))
    if x.requires_grad and torch.is_grad_enabled():
        if recipe.row.backward is None:
            raise no_gradient(recipe)
        if recipe.narrow is not None and not narrow_sum_heard(recipe.row.op, recipe.narrow):
            raise demand_reduction_dtype(recipe.row.op, recipe.narrow)
        if recipe.options is not None and x.is_leaf:
            recipe = recipe.for_leaf
        return _apply(x, (recipe, comm, sizes))
    result = run(x, (recipe, comm, sizes))
    return result if result is not x else x.detach()


def perform_in_place(x: Tensor, recipe: Recipe, comm: Communicator) -> Tensor:
    """The recipe of an all_reduce, its result written into ``x``."""
    if recipe.way != wire.TRACED and transforms_active():
        return x.copy_(_apply_transformed(x, (recipe, comm, None)))
    if not (x.requires_grad and torch.is_grad_enabled()):
        return wire.all_reduce_(x, comm, recipe.way, recipe.reduction)
    if recipe.row.backward is None:
        raise no_gradient(recipe)
    if recipe.narrow is not None and not narrow_sum_heard(recipe.row.op, recipe.narrow):
        raise demand_reduction_dtype(recipe.row.op, recipe.narrow)
    if x.is_leaf:
        raise SpmdValueError(
            f"{recipe.row.op} cannot write into a leaf that requires grad",
            code="SW208",
            help=(f"{recipe.row.op}(x, ...) without inplace=True", "or do it inside torch.no_grad()"),
        )
    return _apply_in_place(x, (recipe, comm, None))


def no_gradient(recipe: Recipe) -> SpmdValueError:
    """The error of a maximum or minimum whose operand would receive a gradient."""
    kind = recipe.reduction
    return SpmdValueError(
        f"no gradient flows through the {kind} over ranks, but the operand of {recipe.row.op} requires grad",
        code="SW118",
        help=(f'{recipe.row.op}(x.detach(), ..., op="{kind}")',),
    )


Step = tuple[Recipe, Communicator, Any]
"""A recipe, the communicator that it runs on, and the ranks' uneven sizes or None."""


def run(x: Tensor, step: Step) -> Tensor:
    """The recipe on the local tensor, outside autograd."""
    recipe, comm, sizes = step
    if recipe.casts:
        return recipe.kernel(x.to(recipe.op_dtype), comm, recipe, sizes).to(recipe.out_dtype)
    return recipe.kernel(x, comm, recipe, sizes)


def backward_step(step: Step) -> Step:
    """What a gradient goes through where the tensor went through ``step``."""
    recipe, comm, sizes = step
    assert recipe.partner is not None, "recipes for calls are made with their partners"
    if sizes is not None and recipe.row.op == "all_to_all":
        sizes = (sizes[1], sizes[0])
    return recipe.partner, comm, sizes


class StepContext(Protocol):
    """The context of autograd, as far as a transition uses it."""

    step: Step

    def mark_dirty(self, *tensors: Tensor) -> None: ...


class TransitionFunction(torch.autograd.Function):
    """A transition between placements; its gradient takes the partner."""

    __shardwise_internal__ = True

    @staticmethod
    def forward(ctx: StepContext, x: Tensor, step: Step) -> Tensor:
        ctx.step = recipe, comm, sizes = step
        return run(x, step) if recipe.casts else recipe.kernel(x, comm, recipe, sizes)

    @staticmethod
    def backward(ctx: StepContext, grad: Tensor) -> tuple[Tensor, None]:
        step = recipe, comm, sizes = backward_step(ctx.step)
        if grad.requires_grad and torch.is_grad_enabled():
            return _apply(grad, (recipe.with_partner(), comm, sizes)), None
        return run(grad, step) if recipe.casts else recipe.kernel(grad, comm, recipe, sizes), None


class TransitionFunctionInPlace(torch.autograd.Function):
    """all_reduce into its operand."""

    __shardwise_internal__ = True

    @staticmethod
    def forward(ctx: StepContext, x: Tensor, step: Step) -> Tensor:
        ctx.step = step
        ctx.mark_dirty(x)
        return wire.all_reduce_(x, step[1])

    backward = TransitionFunction.backward


class TransformedTransition(torch.autograd.Function):
    """A transition inside vmap and the derivatives of ``torch.func``, which want a function in four parts.

    A transition is linear, so its tangent takes the same transition. Recipes count dims from the front: the dim that
    vmap maps goes to the end, where none of them sees it.
    """

    __shardwise_internal__ = True

    @staticmethod
    def forward(x: Tensor, step: Step) -> Tensor:
        result = run(x, step)
        return result if result is not x else x.view_as(x)

    @staticmethod
    def setup_context(ctx: StepContext, inputs: tuple[Tensor, Step], output: Tensor) -> None:
        ctx.step = inputs[1]

    @staticmethod
    def backward(ctx: StepContext, grad: Tensor) -> tuple[Tensor, None]:
        recipe, comm, sizes = backward_step(ctx.step)
        return _apply_transformed(grad, (recipe.with_partner(), comm, sizes)), None

    @staticmethod
    def jvp(ctx: StepContext, tangent: Tensor, step: None) -> Tensor:
        return _apply_transformed(tangent, ctx.step)

    @staticmethod
    def vmap(info: object, in_dims: tuple[int, None], x: Tensor, step: Step) -> tuple[Tensor, int]:
        return _apply_transformed(x.movedim(in_dims[0], -1), step), -1


# The stubs of torch leave ``apply`` untyped.
_apply_transformed: Callable[[Tensor, Step], Tensor] = TransformedTransition.apply
_apply: Callable[[Tensor, Step], Tensor] = TransitionFunction.apply
_apply_in_place: Callable[[Tensor, Step], Tensor] = TransitionFunctionInPlace.apply


def frozen_sizes(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Split sizes as a tuple of ints. Errors: SW208 for anything else."""
    if sizes is None:
        return None
    try:
        return tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise SpmdArgumentError(
            f"split sizes are one int per rank, got one of type {type(sizes).__name__}", code="SW208"
        ) from None
