"""Tensors of vmap, inside and outside: the mapped dim is one more dim, orthogonal to the mesh.

Local types are the same on both sides. A spec loses the entry of the mapped dim on the way in and gets it back, at the
place where the dim goes, on the way out.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.tagging import Tag, alias, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, TorchFunction
from shardwise.interop.torch_compat import RUN_VMAP, UNWRAP_VMAP_OUTPUTS, WRAP_VMAP_INPUTS, tree_leaves
from shardwise.mesh.entry import current_entry, set_current_entry
from shardwise.types.spec import PartitionSpec, entry_axes, spec_of
from shardwise.types.tensor_type import Ground, TensorType

from ..control_flow.slices import stacked_type
from ..diagnosis.sharding_refusals import not_mapped
from ..state.session import CheckSession
from .patches import Patches, Plugin, checking_session

_CUT_ANYWHERE = (Ground.ZERO, Ground.UNIFORM, Ground.UNKNOWN)
"""What a slice is alike of, whichever it is, or nobody knows it."""


class _Local(threading.local):
    entry: Any = None
    """How the mapped dim of the vmap that runs is sharded."""


_local = _Local()


@contextlib.contextmanager
def _mapped_over(session: CheckSession, in_dims: Sequence[int | None], args: Arguments) -> Iterator[None]:
    """Inside the block, axes that shard the mapped dim have local semantics: the dim that they cut cannot be seen."""
    mapped = [(arg, dim) for dim, arg in zip(in_dims, args, strict=True) if dim is not None and tag_of(arg) is not None]
    entries = [_entry(arg, dim) for arg, dim in mapped]
    before, mesh = _local.entry, current_entry()
    _local.entry = next((entry for entry in entries if entry is not None), None)
    if not session.local:
        for (arg, _), entry in zip(mapped, entries, strict=True):
            if entry != _local.entry and type_of(arg).ground not in _CUT_ANYWHERE:
                _refuse_slices(session, arg)
    if mesh is not None and _local.entry is not None:
        set_current_entry(mesh.mapping(entry_axes(_local.entry)))
    try:
        yield
    finally:
        _local.entry = before
        set_current_entry(mesh)


def _entry(arg: object, dim: int) -> object:
    spec = type_of(arg).spec
    return None if spec is None else spec[dim]


def _refuse_slices(session: CheckSession, arg: object) -> None:
    """SW401 of a mapped argument whose mapped dim is not sharded as that of the others."""
    axis = entry_axes(_local.entry)[0]
    located = LocatedCall("vmap", [("args", arg)])
    report(session, located, not_mapped("vmap", located.name(0), axis, "not sharded along its mapped dim"), axis)


def _type_inputs(in_dims: Sequence[int | None], args: Arguments, made: object) -> None:
    """Type the tensors that the mapped function sees; each shares memory with the argument it wraps."""
    for dim, arg, inner in zip(in_dims, args, tree_leaves(made), strict=True):
        tag = tag_of(arg)
        if dim is None or tag is None or inner is arg or not isinstance(inner, torch.Tensor):
            continue
        type = tag.current()
        if type.spec is not None:
            type = type.with_spec(_without(type.spec, dim))
        alias(inner, arg, type, tag.origin)


def _type_outputs(session: CheckSession, inner: object, out_dims: object, made: object) -> None:
    """Type the results of vmap by the types that were computed inside."""
    inside, outside = tree_leaves(inner), tree_leaves(made)
    dims = tree_leaves(out_dims)
    if len(dims) == 1:
        dims *= len(outside)
    for dim, before, after in zip(dims, inside, outside, strict=True):
        tag = tag_of(before)
        if tag is None or after is before or not isinstance(after, torch.Tensor):
            continue
        type = tag.current()
        if dim is not None:
            entry = _local.entry
            if entry is not None and not session.local:
                type, known = stacked_type(session, "vmap", before, type, entry_axes(entry))
                entry = entry if known else None
            type = type.with_spec(_with(type, before.ndim, dim, entry))
        set_tag(after, Tag(type, tag.origin))


def _without(spec: PartitionSpec, dim: int) -> PartitionSpec | None:
    entries = list(spec)
    del entries[dim]
    return spec_of(entries)


def _with(type: TensorType, ndim: int, dim: int, entry: object) -> PartitionSpec | None:
    """The spec with the mapped dim back at ``dim``, sharded as it was if the result still varies over those axes."""
    entries = list(type.spec or [None] * ndim)
    kept = entry if all(type.is_varying(axis) for axis in entry_axes(entry)) else None
    entries.insert(dim if dim >= 0 else ndim + 1 + dim, kept)
    return spec_of(entries)


def _wrap_vmap(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def run(
        func: TorchFunction,
        batch_size: object,
        in_dims: Sequence[int | None],
        args: Arguments,
        *rest: object,
        **kwargs: object,
    ) -> object:
        session = checking_session()
        if session is None:
            return plain(func, batch_size, in_dims, args, *rest, **kwargs)
        with _mapped_over(session, in_dims, args):
            return plain(func, batch_size, in_dims, args, *rest, **kwargs)

    return run


def _wrap_batching(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def create(in_dims: Sequence[int | None], args: Arguments, *rest: object) -> object:
        made = plain(in_dims, args, *rest)
        if checking_session() is not None:
            _type_inputs(in_dims, args, made)
        return made

    return create


def _wrap_unbatching(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def unwrap(outputs: object, out_dims: object, *rest: object) -> object:
        made = plain(outputs, out_dims, *rest)
        session = checking_session()
        if session is not None:
            _type_outputs(session, outputs, out_dims, made)
        return made

    return unwrap


def _install(patches: Patches) -> None:
    patches.replace(RUN_VMAP, _wrap_vmap)
    patches.replace(WRAP_VMAP_INPUTS, _wrap_batching)
    patches.replace(UNWRAP_VMAP_OUTPUTS, _wrap_unbatching)


PLUGIN = Plugin("types under vmap", _install)
