"""Which typed collective is running, in placements? Told around the kernel of every recipe, in backward too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from shardwise.collectives.functions import forget_recipes
from shardwise.collectives.recipe import Recipe
from shardwise.host.attribute_patch import patched
from shardwise.op_rules.transitions import Transition


@contextlib.contextmanager
def transitions_told(during: Callable[[str], AbstractContextManager[None]]) -> Iterator[None]:
    """Inside the block every typed collective runs inside of ``during("P->I")``."""
    original = Recipe.__init__

    def init(recipe: Recipe, row: Transition, *rest: Any) -> None:
        original(recipe, row, *rest)
        kernel = recipe.kernel

        def told(*args: Any) -> Tensor:
            with during(f"{row.src}->{row.dst}"):
                return kernel(*args)

        recipe.kernel = told

    forget_recipes()
    try:
        with patched(Recipe, "__init__", init):
            yield
    finally:
        forget_recipes()
