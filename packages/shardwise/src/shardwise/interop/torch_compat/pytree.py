"""Nested containers, those registered by users too; torch has no public functions for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .registry import private


@private(
    "torch.utils._pytree.tree_leaves",
    lost="every check",
)
def tree_leaves(value: object) -> list[Any]:
    """The leaves of nested containers, those registered by users too; None is a leaf."""
    from torch.utils import _pytree

    return _pytree.tree_leaves(value)


@private(
    "torch.utils._pytree.tree_map",
    lost="every check",
)
def tree_map(function: Callable[..., object], value: object) -> Any:
    """``value`` with every leaf replaced by ``function(leaf)``."""
    from torch.utils import _pytree

    return _pytree.tree_map(function, value)


@private(
    "torch.utils._pytree.tree_flatten",
    "torch.utils._pytree.TreeSpec.flatten_up_to",
    lost="declared boundaries",
)
def tree_match(value: object, other: object) -> tuple[list[object], list[object]]:
    """The leaves of ``value``, and the parts of ``other`` that stand in their places.

    Errors: ValueError if ``other`` is not built like ``value``.
    """
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten(value)
    return leaves, structure.flatten_up_to(other)


@private(
    "torch.utils._pytree.tree_structure",
    lost="register_decomposition",
)
def tree_structure(value: object) -> object:
    """How ``value`` is nested; structures compare by value and print themselves."""
    from torch.utils import _pytree

    return _pytree.tree_structure(value)


@private(
    "torch.utils._pytree.register_pytree_node",
    lost="numbers of this rank",
    tier=2,
)
@functools.cache
def register_container(cls: type, plain: type[tuple[object, ...] | list[object]]) -> None:
    """Nested containers may hold a ``cls``, a tuple or list that comes back as a ``plain`` one."""
    from torch.utils import _pytree

    _pytree.register_pytree_node(cls, lambda made: (list(made), None), lambda items, _: plain(items))
