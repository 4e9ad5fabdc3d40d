"""Writes that no function mode shows: into a storage, into half of a complex tensor, and ``set_``."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.calls.boundary import finish, outermost
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.running.session import paused
from shardwise.op_rules.registry import lookup

from ..call.arguments import Op
from ..operators.ordinary import ordinary
from ..operators.parts_written import set_memory, wrap_storage_write
from .patches import Patches, Plugin, checking_session


class Half(property):
    """``real`` or ``imag``; a function mode is shown its getter, and asks it for the name."""

    __name__: str


def _install(patches: Patches) -> None:
    for name in ("copy_", "fill_"):
        _add(
            patches,
            torch.UntypedStorage,
            name,
            wrap_storage_write(checking_session, getattr(torch.UntypedStorage, name)),
        )
    for name in ("real", "imag"):
        plain = getattr(torch.Tensor, name)
        half = Half(plain.__get__, _wrap_half(name, plain.__set__))
        half.__name__ = name
        _add(patches, torch.Tensor, name, half)
    _add(patches, torch.Tensor, "set_", _wrap_set(torch.Tensor.set_))


def _add(patches: Patches, owner: type, name: str, value: object) -> None:
    """``owner`` inherits what ``value`` stands in for, so it is taken away again and not put back."""
    setattr(owner, name, value)
    patches.on_undo(functools.partial(delattr, owner, name))


def _wrap_half(name: str, plain: Callable[[object, object], None]) -> Callable[[object, object], None]:
    rule = lookup("copy_")
    assert rule is not None, "the registry knows copy_"
    copies = ordinary(Op(OpName(("copy_",), in_place=True), rule))

    @outermost
    def write(self: object, value: object) -> None:
        session = checking_session()
        if session is None:
            plain(self, value)
            return

        def assign(target: object, given: object) -> object:
            with paused(session):
                plain(target, given)
            return target

        try:
            copies(session, assign, (self, value), {})
        except SpmdTypeError as error:
            finish(error, name)
            raise

    return write


def _wrap_set(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def set_(self: object, *args: object, **kwargs: object) -> object:
        session = checking_session()
        return plain(self, *args, **kwargs) if session is None else set_memory(session, plain, (self, *args), kwargs)

    return set_


PLUGIN = Plugin("writes into storages and halves of complex tensors", _install)
