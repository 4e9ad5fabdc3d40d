"""The running statistics of a batch norm: in training they are written from the batch, as by hand.

So over an axis where the batch varies they vary from then on, whatever they were: each rank keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.tensors.tagging import Origin, type_of
from shardwise.types.placement import UNKNOWN
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

from ..call.arguments import Op
from ..state.session import CheckSession
from ..writes.write_destination import settle, write
from .known_calls import leaves
from .ordinary import Handler, ordinary

_BY_DEFAULT = {"training": False, "use_input_stats": True}
"""The parameter that says whether the batch's own statistics are used, and what it is if not given."""
_BUFFERS = ("running_mean", "running_var")


def writes_statistics(op: Op) -> bool:
    """True for the norms that keep running statistics."""
    return set(_BUFFERS) <= set(op.params)


def with_statistics(op: Op) -> Handler:
    """The handler for a norm that keeps running statistics."""
    plain = ordinary(op)
    switch = next(name for name in _BY_DEFAULT if name in op.params)
    steady: set[tuple[Any, ...]] = set()
    """Types of the batch, the result and the buffers, where the buffers keep theirs."""

    def handle(session: CheckSession, func: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        result = plain(session, func, args, kwargs)
        given = dict(op.arguments(args, kwargs))
        buffers = [given[name] for name in _BUFFERS if isinstance(given.get(name), torch.Tensor)]
        if given.get(switch, _BY_DEFAULT[switch]) and buffers and isinstance(result, torch.Tensor):
            batch, made = type_of(given[op.params[0]]), type_of(result)
            types = (batch, made, *[(type_of(buffer), buffer.requires_grad) for buffer in buffers])
            if types in steady:
                return result
            origin = Origin(user_site(), f"updated by {op.name} here")
            # Weight and bias have no part in the statistics.
            written = _of_channels(batch if batch.axes else made, made)
            if all(leaves(buffer, written, op.name) for buffer in buffers):
                steady.add(types)
            write(settle(session, op.name, buffers, written, ()), origin)
        return result

    return handle


def _of_channels(batch: TensorType, result: TensorType) -> TensorType:
    """The type of one number per channel (dim 1), unknown where the norm itself was refused."""
    cut = batch.spec[1] if batch.spec is not None and len(batch.spec) > 1 else None
    refused = {axis: UNKNOWN for axis in batch.axes if result.get(axis) is UNKNOWN}
    return batch.with_spec(None if cut is None else PartitionSpec(cut)).with_placements(refused)
