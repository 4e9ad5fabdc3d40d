"""Assignments to a part of a buffer of gradients, to ``.data``, other sizes: which memory do they write, or share?

``buffer[4:8] = gradient`` is a copy into a view. ``x.data = y`` copies nothing: ``x`` is another name for the memory of
``y`` from there on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.tensors.tagging import (
    Tag,
    adopt_memory,
    alias,
    forget_memory,
    forget_storage,
    is_pieced,
    remember_memory,
    set_tag,
    set_type,
    tag_of,
    type_of,
)
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function, same_memory
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.registry import lookup
from shardwise.types.placement import UNKNOWN
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import EMPTY_TYPE, UNKNOWN_TYPE, UNTYPED

from ..call.arguments import Op
from ..state.session import CheckSession
from ..writes.shared_memory import remember_parameter
from .given_sizes import cuts_of
from .ordinary import Handler, ordinary


def assigning_parts(usual: Handler) -> Handler:
    """The handler of ``buffer[index] = value``: by ``usual``, unless gradients lie in the buffer or are put there."""
    rule = lookup("copy_")
    assert rule is not None, "the registry knows copy_"
    copies = ordinary(Op(OpName(("copy_",), in_place=True), rule))

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        if len(args) != 3 or not any(
            gradient_origin(tag_of(x)) is not None or is_pieced(x) for x in (args[0], args[2])
        ):
            return usual(session, func, args, kwargs)
        given: tuple[Any, ...] = tuple(args)
        buffer, index, value = given
        with no_torch_function(), torch.no_grad():
            part = buffer[index]
            is_view = same_memory(part, buffer)
        if not is_view:
            result = usual(session, func, args, kwargs)
            if is_pieced(buffer):
                session.lose("the type of gradients that are written by an index of tensors or a mask", user_location())
                forget_memory(buffer)
            return result
        adopt_memory(buffer)
        alias(part, buffer, type_of(part) if tag_of(part) is not None else type_of(buffer).with_spec(None), None)
        if not isinstance(value, torch.Tensor):
            value = torch.full((), value, dtype=part.dtype, device=part.device)
        copies(session, lambda *_: func(buffer, index, given[2]), (part, value), {})
        return None

    return handle


def assign_data(copying: Handler) -> Handler:
    """The handler of ``x.data = y``, whose type may be written into ``x`` as ``copying`` judges it."""

    def handle(session: CheckSession, func: object, args: Arguments, kwargs: Keywords) -> object:
        result = copying(session, func, args, kwargs)
        target, source = args
        if isinstance(source, torch.Tensor) and (tag := tag_of(source)) is not None and tag.cell is not None:
            alias(target, source, type_of(target), None if (own := tag_of(target)) is None else own.origin)
        if isinstance(target, torch.Tensor):
            remember_parameter(session, target)
        return result

    return handle


def set_memory(session: CheckSession, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
    """``x.set_(y)``: another name for the memory of ``y``; of a bare storage nobody knows the type."""
    is_new = isinstance(args[0], torch.Tensor) and not args[0].numel()
    result = func(*args, **kwargs)
    target, source = args[0], args[1] if len(args) > 1 else kwargs.get("source")
    if isinstance(source, torch.Tensor) and (tag := tag_of(source)) is not None:
        session.checked += 1
        alias(target, source, type_of(source), tag.origin)
    elif type_of(target) is not UNTYPED:
        of = "is read of a file or a message, as by torch.load" if is_new else "was given other memory by set_"
        session.lose(f"the type of a tensor that {of}", user_location())
        set_tag(target, Tag(UNKNOWN_TYPE))
    return result


def resizing(handler: Handler) -> Handler:
    """The handler of ``resize_``, after which a typed tensor has some of its elements in another shape, or more."""

    def handle(session: CheckSession, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
        x = args[0]
        if not isinstance(x, torch.Tensor) or not type_of(x).axes:
            return handler(session, func, args, kwargs)
        type = type_of(x)
        with no_torch_function():
            before = x.shape
        result = func(*args, **kwargs)
        with no_torch_function():
            after = x.shape
        session.checked += 1
        if after.numel() > before.numel():
            session.lose("the type of a tensor that has been made larger by resize_", user_location())
            set_type(x, UNKNOWN_TYPE)
        elif after.numel() == 0:
            set_tag(x, Tag(EMPTY_TYPE))
        elif after != before and not session.local and (axes := _cutting(args[1:])):
            session.lose("the type of a tensor that has been made as small as a shard", user_location())
            set_type(x, type.with_spec(None).with_placements({axis: UNKNOWN for axis in axes if axis in type}))
        elif after != before and type.spec is not None:
            set_type(x, type.with_spec(None))
        return result

    return handle


def _cutting(sizes: Sequence[object]) -> set[MeshAxis]:
    """The axes that cut a tensor of these sizes, or one in the shape of another."""
    like = sizes[0] if sizes else None
    if isinstance(like, torch.Tensor):
        return {axis for entry in type_of(like).spec or () for axis in entry_axes(entry)}
    return set(cuts_of(like if isinstance(like, (list, tuple)) else sizes))


def storage_given(session: CheckSession, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
    """``x.untyped_storage()``: whoever has it may write where no call shows, so it is remembered whose memory it is."""
    storage = func(*args, **kwargs)
    if type_of(args[0]).axes:
        remember_memory(args[0])
    return storage


def wrap_storage_write(find: Callable[[], CheckSession | None], plain: Callable[..., object]) -> object:
    """``copy_`` and ``fill_`` of a storage, after which nothing is known of the tensors that share it."""

    @functools.wraps(plain)
    def write(self: object, *args: object, **kwargs: object) -> object:
        session = find()
        result = plain(self, *args, **kwargs)
        if session is not None and forget_storage(self):
            session.lose("the types of tensors whose storage was written", user_location())
        return result

    return write
