"""New tensor objects of the same data: ``nn.Parameter``, and ``as_subclass``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.tensors.tagging import alias, tag_of
from shardwise.types.tensor_type import Ground

from ..writes.shared_memory import remember_parameter
from .patches import Patches, Plugin, checking_session


def plugin(made: Callable[[], None]) -> Plugin:
    """``made`` is called before each parameter is made: what wraps parameters may have been loaded by then."""
    return Plugin("parameters", lambda patches: _install(patches, made), tier=1)


def _install(patches: Patches, made: Callable[[], None]) -> None:
    patches.replace_attribute(torch.nn.Parameter, "__new__", functools.partial(_wrap, made))
    torch.Tensor.as_subclass = _wrap_as_subclass(torch.Tensor.as_subclass)  # type: ignore[method-assign]
    patches.on_undo(functools.partial(delattr, torch.Tensor, "as_subclass"))  # which it inherits


def _wrap_as_subclass(plain: Callable[..., object]) -> Any:
    @functools.wraps(plain)
    def as_subclass(self: object, cls: object) -> object:
        made = plain(self, cls)
        tag = tag_of(self)
        if tag is not None and made is not self and checking_session() is not None:
            alias(made, self, tag.current(), tag.origin)
        return made

    return as_subclass


def _wrap(before: Callable[[], None], original: Any) -> object:
    plain = original.__func__

    @functools.wraps(plain)
    def __new__(cls: object, data: object = None, requires_grad: bool = True) -> object:
        before()
        made = plain(cls, data, requires_grad)
        tag = tag_of(data)
        # A constant is typed for want of anything better; what a parameter made of it is, its owner will say.
        if (
            tag is not None
            and tag_of(made) is None
            and tag.current().ground is Ground.ABSENT
            and checking_session() is not None
        ):
            alias(made, data, tag.current(), tag.origin)
        session = checking_session()
        if session is not None:
            remember_parameter(session, made)
        return made

    return staticmethod(__new__)
