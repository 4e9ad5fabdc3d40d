"""Rows of a shard that are numbered to read one element of each: ``q[torch.arange(x.shape[0]), action]``.

Positions are global, so a shard is not read by them. These are all of the rank's own rows in their order, and on one
device all there are: what is read at them is cut like the shard, if what else says where to read is cut with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import Arguments
from shardwise.interop.torch_compat import base_of, no_torch_function, writes_of
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.types.placement import Placement, V
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from ..state.numbers import shared_along

_NEEDED_WHOLE = "SW405"
_numbered: Any = by_tensor()
"""By tensor, the axes along which it numbers a rank's own rows, and the count of its writes."""


def note_rows(made: torch.Tensor, numbers: Sequence[object]) -> None:
    """``made`` is ``arange`` of these numbers: up to the size of a shard it numbers the rows of one."""
    axes = shared_along(numbers[0]) if len(numbers) == 1 else ()
    if axes:
        with no_torch_function():
            _numbered[made] = axes, writes_of(made)


def rows_read(outcome: Outcome, args: Arguments) -> Outcome:
    """``outcome`` of ``x[index]`` without what is refused because rows of a shard are read by their numbers."""
    if len(_numbered) == 0 or len(args) != 2 or not isinstance(args[0], torch.Tensor):
        return outcome
    x, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    kept: list[AxisRefusal] = []
    cut: dict[MeshAxis, int] = {}
    with no_torch_function():
        for one in outcome.refusals:
            at = _dim_read(one.axis, x, index) if one.refusal.code == _NEEDED_WHOLE else None
            if at is None or not isinstance(one.axis, MeshAxis):
                kept.append(one)
            else:
                cut[one.axis] = at
        ndim = x[index].ndim if cut else 0
    if not cut or outcome.results:
        return outcome
    type = outcome.type
    entries = [entry_axes(entry) for entry in type.spec or (None,) * ndim]
    for axis in sorted(cut, key=lambda axis: axis.sort_key):
        entries[cut[axis]] = (*entries[cut[axis]], axis)
    places: dict[MeshAxis, Placement] = {axis: V if axis in cut else type.get(axis) for axis in (*type.axes, *cut)}
    scale = {axis: type_of(x).exponent(axis) if axis in cut else type.exponent(axis) for axis in places}
    made = TensorType.of(places, PartitionSpec(*map(make_entry, entries)), type.ground, type.uneven, scale)
    return replace(outcome, type=made, refusals=tuple(kept), sources=(0,) * len(made.axes))


def _dim_read(axis: object, x: torch.Tensor, index: Sequence[object]) -> int | None:
    """The dim of ``x[index]`` that has one entry for each of the own rows; None if the rows are not read so."""
    type = type_of(x)
    shard = partition_spec_get_shard(type.spec, axis)
    tensors = [at for at, one in enumerate(index) if isinstance(one, torch.Tensor)]
    whole = all(isinstance(one, slice) or at in tensors for at, one in enumerate(index))
    if shard is None or axis in type.uneven or shard.dim not in tensors or not whole:
        return None
    rows: Any = index[shard.dim]
    along = _numbers(rows, axis, x.shape[shard.dim])
    if along is None:
        return None
    used: list[Any] = [index[at] for at in tensors]
    if any(one.dtype is torch.bool for one in used) or not all(
        _goes_along(one, axis, along) for one in used if one is not rows
    ):
        return None
    width: int = max(one.ndim for one in used)
    first: int = tensors[0] if tensors == list(range(tensors[0], tensors[-1] + 1)) else 0
    return first + width + along


def _numbers(rows: torch.Tensor, axis: object, size: int) -> int | None:
    """Which dim, counted from the last, numbers ``size`` rows of a shard over ``axis``; None if none does."""
    made = rows if (base := base_of(rows)) is None else base
    axes: Iterable[object]
    axes, writes = _numbered.get(made, ((), 0))
    if axis not in axes or made.numel() != size or writes != writes_of(made):
        return None
    strides = [0 if extent == 1 else stride for extent, stride in zip(rows.shape, rows.stride(), strict=True)]
    dims = [dim for dim, stride in enumerate(strides) if stride] or [rows.ndim - 1]
    if len(dims) > 1 or rows.shape[dims[0]] != size or strides[dims[0]] > 1:
        return None
    return dims[0] - rows.ndim


def _goes_along(other: torch.Tensor, axis: object, along: int) -> bool:
    """Another index says for each of the rows where to read, or the same for all of them."""
    type, at = type_of(other), other.ndim + along
    if type.is_varying(axis):
        cut = partition_spec_get_shard(type.spec, axis)
        return cut is not None and cut.dim == at and axis not in type.uneven
    return type.is_equal(axis) and (at < 0 or other.shape[at] == 1)
