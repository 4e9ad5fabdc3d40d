"""How does a move run, and how does autograd see it? One autograd.Function for all moves: its backward is another move.

Because the table of moves is closed under taking gradients, ``Transition`` applied to the partner recipe is the whole
backward, and applying it again is the double backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from shardwise.interop.process_groups import Communicator
from torch import Tensor

from .dtypes import demand_reduction_dtype
from .recipe import Recipe, make_recipe
from .sizes import check_sizes

_recipes: dict[tuple[Any, ...], Recipe] = {}


def recipe_for(axis: Any, *key: Any) -> Recipe:
    """``make_recipe`` of the same arguments, made once per kind of call; ``axis`` serves error texts only."""
    if torch.compiler.is_compiling():
        return make_recipe(axis, *key)
    try:
        return _recipes[key]
    except KeyError:
        made = _recipes[key] = make_recipe(axis, *key)
        return made
    except TypeError:  # an unhashable src or dst: let the recipe say what is wrong with it
        return make_recipe(axis, *key)


def perform(x: Tensor, recipe: Recipe, comm: Communicator, sizes: Any = None) -> Tensor:
    """Check the operand's sizes, then run the recipe; through autograd if ``x`` takes part in it."""
    check_sizes(x, recipe, comm, sizes)
    if x.requires_grad and torch.is_grad_enabled():
        if recipe.narrow is not None:
            raise demand_reduction_dtype(recipe.move.op, recipe.narrow)
        if recipe.options is not None and x.is_leaf and recipe.defers_backward:
            recipe = recipe.waiting
        return Transition.apply(x, recipe, comm, sizes)  # type: ignore[no-any-return,no-untyped-call]
    result = run(x, recipe, comm, sizes)
    return result if result is not x else x.view_as(x)


def run(x: Tensor, recipe: Recipe, comm: Communicator, sizes: Any) -> Tensor:
    """The recipe on the local tensor, outside autograd."""
    if recipe.casts:
        return recipe.kernel(x.to(recipe.op_dtype), comm, recipe, sizes).to(recipe.out_dtype)
    return recipe.kernel(x, comm, recipe, sizes)


class Transition(torch.autograd.Function):
    """A move between placements; its gradient takes the partner move."""

    __shardwise_internal__ = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, recipe: Recipe, comm: Communicator, sizes: Any) -> Tensor:
        ctx.recipe, ctx.comm, ctx.sizes = recipe, comm, sizes
        return run(x, recipe, comm, sizes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        recipe, sizes = ctx.recipe.partner, ctx.sizes
        if sizes is not None and recipe.move.op == "all_to_all":
            sizes = (sizes[1], sizes[0])
        if grad.requires_grad and torch.is_grad_enabled():
            return Transition.apply(grad, recipe, ctx.comm, sizes), None, None, None  # type: ignore[no-untyped-call]
        return run(grad, recipe, ctx.comm, sizes), None, None, None


class TransitionInPlace(torch.autograd.Function):
    """all_reduce into its operand."""

    __shardwise_internal__ = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, recipe: Recipe, comm: Communicator) -> Tensor:
        from shardwise.interop import wire

        ctx.recipe, ctx.comm, ctx.sizes = recipe, comm, None
        ctx.mark_dirty(x)
        return wire.all_reduce_(x, comm)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return Transition.backward(ctx, grad)[:3]


def frozen_sizes(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Split sizes as a tuple of ints."""
    return None if sizes is None else tuple(int(size) for size in sizes)
