"""How does a tensor change its placement without communication? convert keeps the value, reinterpret the local bits.

``convert`` may change local data (take one's own piece, put zeros elsewhere); ``reinterpret`` never does, and may
change what the tensors mean. Both go through autograd, where the partner transition of op_rules/transitions.py may
communicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from shardwise.diagnostics.errors import SpmdValueError, shown
from shardwise.interop.calls.dispatch import typed_call
from shardwise.interop.communication.process_groups import communicator
from shardwise.types.aliases import BackwardOptions, DeviceMeshAxis
from shardwise.types.placement import I, PerMeshAxisSpmdType, R, Shard

from .functions import frozen_sizes, perform, recipe_for
from .request import ConvertOptions


@typed_call("convert")
def convert(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    expert_mode: bool = False,
    split_sizes: Sequence[int] | None = None,
    op_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
    async_op: bool = False,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """``x`` in another placement with the same value, without communication in forward.

    Shapes:  R/I -> V takes this rank's entry of dim 0, which it drops; R/I -> S(i) this rank's piece of dim i (even, or
             by ``split_sizes``); S(i) -> P pads with zeros along dim i, V -> P on a new dim 0; otherwise as ``x``.
    Types:   see op_rules/transitions.py; the same placement returns ``x`` itself.
    Errors:  SW202; SW203 without expert_mode; SW204, SW206 for sizes; SW208; SW209; SW211.
    Source:  op_rules/transitions.py, rows "convert".
    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": R})
        >>> print(typeof(convert(x, "tp", src=R, dst=S(0))))
        f32[1, 8] {dp: R, tp: V}
        >>> print(typeof(convert(x, "tp", src=R, dst=P)))
        f32[4, 8] {dp: R, tp: P}
    """
    common = (op_dtype, out_dtype, async_op, backward_options)
    recipe = recipe_for("convert", x, axis, src, dst, common, expert_mode=expert_mode)
    if split_sizes is not None and not isinstance(src, Shard) and not isinstance(dst, Shard):
        raise SpmdValueError("split_sizes are only supported with S(i)", code="SW208")
    if recipe.is_noop:
        return x
    return perform(x, recipe, communicator(axis), frozen_sizes(split_sizes))


@typed_call("reinterpret")
def reinterpret(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    expert_mode: bool = False,
    op_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
    async_op: bool = False,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """``x`` read in another placement: the same local bits, possibly another value.

    Shapes:  as ``x``.
    Types:   R, I -> V, P and V -> P among others, see op_rules/transitions.py; the same placement returns ``x`` itself.
    Errors:  SW202 (S(i), P and V -> R/I are refused); SW203 without expert_mode; SW208; SW209; SW211.
    Source:  op_rules/transitions.py, rows "reinterpret".
    Example:
        >>> x = assert_type(torch.ones(4), {"tp": V})
        >>> print(typeof(reinterpret(x, "tp", src=V, dst=P)))
        f32[4] {dp: R, tp: P}
    """
    common = (op_dtype, out_dtype, async_op, backward_options)
    recipe = recipe_for("reinterpret", x, axis, src, dst, common, expert_mode=expert_mode)
    if recipe.is_noop:
        return x
    return perform(x, recipe, communicator(axis))


@typed_call("shard")
def shard(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    **options: Unpack[ConvertOptions],
) -> Tensor:
    """``convert`` to this rank's piece: dst must be S(i). Options are convert's.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": R})
        >>> print(typeof(shard(x, "tp", src=R, dst=S(0))))
        f32[1, 8] {dp: R, tp: V}
    """
    if not isinstance(dst, Shard):
        raise SpmdValueError(
            f"dst of shard must be S(i), got {shown(dst)}",
            code="SW202",
            help=(f"convert(x, axis, src={shown(src)}, dst={shown(dst)})",),
        )
    return convert(x, axis, src=src, dst=dst, **options)


@typed_call("invariant_to_replicate")
def invariant_to_replicate(x: Tensor, axis: DeviceMeshAxis, **options: Unpack[ConvertOptions]) -> Tensor:
    """``convert(x, axis, src=I, dst=R)``; Megatron's copy to the tensor-parallel region. Options are convert's.

    Example:
        >>> x = assert_type(torch.ones(4), {"tp": I})
        >>> print(typeof(invariant_to_replicate(x, "tp")))
        f32[4] {dp: R, tp: R}
    """
    return convert(x, axis, src=I, dst=R, **options)
