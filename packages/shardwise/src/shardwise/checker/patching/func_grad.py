"""Derivatives of ``torch.func``, inside and outside: a wrapped tensor has the type of its content.

``grad`` and ``jacrev`` seed a varying output too: each rank takes the derivative of its own one, which varies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Origin, Tag, alias, set_tag, tag_of, type_of
from shardwise.interop.torch_compat import (
    FUNC_BASIS,
    FUNCTIONAL_BASIS,
    RUN_DERIVATIVE,
    UNWRAP_DERIVATIVE,
    WRAP_FOR_DERIVATIVE,
    tree_leaves,
)
from shardwise.mesh.entry import current_entry

from ..diagnosis.loss_findings import elements_apart
from ..gradients.gradient_types import root_scale
from ..gradients.loss import check_roots, type_gradients
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    patches.replace(WRAP_FOR_DERIVATIVE, _wrap_wrapping)
    patches.replace(UNWRAP_DERIVATIVE, _wrap_unwrapping)
    patches.replace(RUN_DERIVATIVE, _wrap_derivative)
    patches.replace(FUNC_BASIS, _wrap_basis)
    patches.replace(FUNCTIONAL_BASIS, _wrap_basis)


def _wrap_wrapping(plain: Callable[..., object]) -> object:
    """``_wrap_tensor_for_grad`` whose result has the type of its argument."""

    @functools.wraps(plain)
    def wrapped(content: object, level: int) -> object:
        made = plain(content, level)
        tag = tag_of(content) if isinstance(content, torch.Tensor) else None
        if tag is not None and made is not content and checking_session() is not None:
            alias(made, content, tag.current(), tag.origin)
        return made

    return wrapped


def _wrap_unwrapping(plain: Callable[..., object]) -> object:
    """``_undo_create_differentiable`` whose results have the types of its arguments."""

    @functools.wraps(plain)
    def unwrapped(inner: object, level: object = None) -> object:
        made = plain(inner, level)
        if checking_session() is not None:
            for before, after in zip(tree_leaves(inner), tree_leaves(made), strict=True):
                tag = tag_of(before) if isinstance(before, torch.Tensor) else None
                if tag is not None and after is not before:
                    set_tag(after, Tag(tag.current(), tag.origin))
        return made

    return unwrapped


def _wrap_basis(plain: Callable[..., object]) -> object:
    """What lists the elements of a tensor, one direction each, for a jacobian: no rank has all of a shard."""

    @functools.wraps(plain)
    def basis(tensors: Any, *args: object, **kwargs: object) -> object:
        session = checking_session()
        mesh = current_entry()
        if session is not None and not session.local:
            # Where ``vmap`` takes a sharded dim apart, each of its elements is one of all, and whole.
            mapped = frozenset[object]() if mesh is None else mesh.mapped_axes
            for x in tensors:
                for axis in (one for one in type_of(x).varying_axes if one not in mapped):
                    located = LocatedCall("jacobian", [("tensor", x)])
                    report(session, located, elements_apart(located.name(0), axis), axis)
        made: Any = plain(tensors, *args, **kwargs)
        if session is None:
            return made
        return _marked(made) if isinstance(made, (list, tuple)) else map(_marked, made)  # in chunks

    return basis


def _marked(directions: Sequence[object]) -> Sequence[object]:
    for each in directions:
        if (tag := tag_of(each)) is not None:
            set_tag(each, tag.of_type(tag.current(), Directions(user_site(), "each direction of a jacobian")))
    return directions


class Directions(Origin):
    """Where the directions come from in which a jacobian is asked for, one after the other."""


def _is_direction(seed: object) -> bool:
    """The cotangent is 1, which is None, or one of the directions of a jacobian."""
    tag = tag_of(seed)
    origin = None if tag is None else tag.origin
    return seed is None or isinstance(origin[0] if isinstance(origin, tuple) and origin else origin, Directions)


def _wrap_derivative(plain: Callable[..., object]) -> object:
    """``_autograd_grad``, the one place where ``torch.func`` runs backward, with typed results."""

    @functools.wraps(plain)
    def derivative(
        outputs: Any, inputs: object, grad_outputs: Sequence[object] | None = None, *args: object, **kwargs: object
    ) -> object:
        session = checking_session()
        if session is None:
            return plain(outputs, inputs, grad_outputs, *args, **kwargs)
        # A constant is what its use needs: here an invariant, of which every rank computes the same derivative.
        if not all(type_of(x).ground.is_constant for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)):
            check_roots(session, outputs, grad_outputs, lists=True)
        scale = root_scale(session, tree_leaves(outputs), tree_leaves(grad_outputs))
        types = [type_of(output) for output in outputs]
        seeds = [None] * len(types) if grad_outputs is None else grad_outputs
        # One direction after the other, as every rank has them, of what each rank has its own of: its own derivative.
        varying = {
            axis for type, seed in zip(types, seeds, strict=True) if _is_direction(seed) for axis in type.varying_axes
        }
        with paused(session):
            results = plain(outputs, inputs, grad_outputs, *args, **kwargs)
        type_gradients(inputs, results, varying, scale)
        return results

    return derivative


PLUGIN = Plugin("derivatives of torch.func", _install)
