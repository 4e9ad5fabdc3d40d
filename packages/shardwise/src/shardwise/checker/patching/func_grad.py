"""What are the types of ``torch.func``'s derivatives, inside and outside? A wrapped tensor has the type of its content.

``grad`` and ``jacrev`` seed a varying output too: each rank takes the derivative of its own one, which varies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.session import paused
from shardwise.interop.tagging import Tag, alias, set_tag, tag_of, type_of
from shardwise.interop.torch_compat import tree_leaves

from ..gradients.loss import check_roots, type_gradients
from ..state.session import CheckSession

FindSession = Callable[[], CheckSession | None]


def wrap_wrapping(find: FindSession, plain: Any) -> Any:
    """``_wrap_tensor_for_grad`` whose result has the type of its argument."""

    @functools.wraps(plain)
    def wrapped(content: Any, level: int) -> Any:
        made = plain(content, level)
        tag = tag_of(content) if isinstance(content, torch.Tensor) else None
        if tag is not None and made is not content and find() is not None:
            alias(made, content, tag.current(), tag.origin)
        return made

    return wrapped


def wrap_unwrapping(find: FindSession, plain: Any) -> Any:
    """``_undo_create_differentiable`` whose results have the types of its arguments."""

    @functools.wraps(plain)
    def unwrapped(inner: Any, level: Any = None) -> Any:
        made = plain(inner, level)
        if find() is not None:
            for before, after in zip(tree_leaves(inner), tree_leaves(made), strict=True):
                tag = tag_of(before) if isinstance(before, torch.Tensor) else None
                if tag is not None and after is not before:
                    set_tag(after, Tag(tag.current(), tag.origin))
        return made

    return unwrapped


def wrap_derivative(find: FindSession, plain: Any) -> Any:
    """``_autograd_grad``, the one place where ``torch.func`` runs backward, with typed results."""

    @functools.wraps(plain)
    def derivative(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        session = find()
        if session is None:
            return plain(outputs, inputs, grad_outputs, *args, **kwargs)
        varying: set[Any] = set()
        if grad_outputs is None:
            check_roots(session, outputs, None, lists=True)
            types = [type_of(output) for output in outputs]
            varying = {axis for type in types for axis in type.varying_axes}
        with paused(session):
            results = plain(outputs, inputs, grad_outputs, *args, **kwargs)
        type_gradients(inputs, results, varying)
        return results

    return derivative
