"""What do PyTorch's own autograd functions do to types? A short table; their authors declare nothing to us.

Reentrant checkpointing runs a region whose operators are checked one by one. Functions that exist for their backward
hand their operands on. Everything else in torch computes locally, except the differentiable collectives, which are as
opaque as a user's.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import torch

from shardwise.host.accelerators.synced_batch_norm import SyncedBatchNorm
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Tag, alias, set_tag, tag_of
from shardwise.interop.torch_compat import (
    BACKWARD_HOOK_FUNCTION,
    DDP_SINK,
    FUNCTIONAL_COLLECTIVES,
    MASK_INDEXING,
    POST_BACKWARD_FUNCTION,
    tree_leaves,
    tree_map,
)

from ..parts.row_orders import Order, order_of, set_order
from ..state.session import CheckSession


class Treatment(enum.Enum):
    """What to do with a call of ``apply``."""

    REGION = "region"
    """Its first argument is a function whose operators are checked (reentrant checkpoint)."""
    IDENTITY = "identity"
    """Each result is the operand in the same position."""
    BRIDGE = "bridge"
    """Moves between DTensor and local tensors."""
    SEEN = "seen"
    """Its forward is made of calls that are checked one by one."""
    LOCAL = "local"
    """A local function that is not linear in anything."""
    OWN_ROWS = "own rows"
    """Each rank keeps its part of the first operand, as a local function does; what it communicates is about the whole.

    The group is its last argument.
    """
    OWN_POSITIONS = "own positions"
    """Takes elements at positions that each rank counts from the start of its own shard."""
    OPAQUE = "opaque"
    """Nothing is known."""


# The longest prefix of the qualified name decides.
_TABLE = {
    "torch.": Treatment.LOCAL,
    "torch.utils.checkpoint.CheckpointFunction": Treatment.REGION,
    BACKWARD_HOOK_FUNCTION: Treatment.IDENTITY,
    POST_BACKWARD_FUNCTION: Treatment.IDENTITY,
    DDP_SINK: Treatment.IDENTITY,
    MASK_INDEXING: Treatment.OWN_POSITIONS,
    "torch.distributed.tensor.": Treatment.BRIDGE,
    "torch.distributed.nn.": Treatment.SEEN,
    f"{SyncedBatchNorm.__module__}.": Treatment.OWN_ROWS,
    # Differentiable collectives: their types depend on the group, which only our own collectives are told.
    FUNCTIONAL_COLLECTIVES: Treatment.OPAQUE,
}


def treatment_of(cls: type) -> Treatment:
    """How ``cls`` is treated if its author declared nothing."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    known = [prefix for prefix in _TABLE if name.startswith(prefix)]
    return _TABLE[max(known, key=len)] if known else Treatment.OPAQUE


def pass_types_on(operands: Sequence[object], results: object) -> object:
    """Give every tensor in ``results`` the type of the operand in its position."""
    tensors = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    for operand, result in zip(operands, tensors, strict=False):
        tag = tag_of(operand)
        if tag is not None and result is not operand:
            alias(result, operand, tag.current(), tag.origin)
    return results


def run_region(session: CheckSession, cls: Any, args: Sequence[Any]) -> object:
    """``CheckpointFunction.apply(function, preserve_rng_state, *args)`` with the region's operators checked.

    The region runs without recording gradients, where R and I mix freely; the recomputation in backward does record
    them. So it is checked as the recomputation will run: on detached operands, recording, the recording dropped.
    """
    function, preserve_rng_state, *operands = args
    typed: list[Tag | None] | None = None
    orders: list[Order] = []

    def region(*inputs: object) -> object:
        nonlocal typed
        if typed is not None:
            return function(*inputs)  # the recomputation
        with paused(session, False):
            with torch.enable_grad():
                results = function(*(_detached(session, value) for value in inputs))
            typed = [tag_of(leaf) for leaf in tree_leaves(results)]
            orders.extend(order_of(leaf) if isinstance(leaf, torch.Tensor) else () for leaf in tree_leaves(results))
            return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, results)

    with paused(session):
        results = cls.apply(region, preserve_rng_state, *operands)
    for leaf, tag, order in zip(tree_leaves(results), typed or (), orders, strict=True):
        if isinstance(leaf, torch.Tensor) and tag is not None:
            set_tag(leaf, Tag(tag.current(), tag.origin))
            set_order(session, leaf, order)
    return results


def _detached(session: CheckSession, value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    detached = value.detach().requires_grad_(value.requires_grad)
    set_order(session, detached, order_of(value))
    return detached
