"""Which collectives does a user call? all_reduce, all_gather, reduce_scatter, all_to_all, and unshard.

Each takes the operand's placement ``src`` and the wanted ``dst`` on one axis, moves data, and is differentiable any
number of times; the gradient takes the partner transition of op_rules/transitions.py. Without checking no types are
read, so ``src`` is what counts. Every wrong argument is refused before anything is sent. With ``async_op`` the result
may be one that waits at its first use; where it has to be laid out anew after the exchange (joined along another dim
than 0, or cut to split sizes), the call waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.interop.calls.dispatch import typed_call
from shardwise.interop.communication.process_groups import communicator
from shardwise.op_rules.transitions import reduced_source
from shardwise.types.aliases import BackwardOptions, DeviceMeshAxis
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Shard, V

from .functions import frozen_sizes, perform, perform_in_place, recipe_for
from .request import GatherOptions


@typed_call("all_reduce")
def all_reduce(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = P,
    dst: PerMeshAxisSpmdType,
    op: str = "sum",
    inplace: bool = False,
    op_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
    async_op: bool = False,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """The sum of ``x`` over ``axis``, on every rank; or its ``op``: "avg", "max" or "min".

    Shapes:  as ``x``.
    Types:   P -> R or I (V is read as P). Gradient: all_reduce P -> R for R, none to do for I. The maximum takes
             P("max"), the minimum P("min"), and no gradient flows through them.
    Errors:  SW202 for other src or dst; SW208 for inplace with a dtype, or another op; SW118 for a maximum of what
             requires grad; SW209; SW211.
    Source:  op_rules/transitions.py, rows "all_reduce".
    Example:
        >>> x = assert_type(torch.ones(2, 8), {"tp": P})
        >>> print(typeof(all_reduce(x, "tp", src=P, dst=R)))
        f32[2, 8] {dp: R, tp: R}
    """
    if op != "sum":
        src = _reduced_source("all_reduce", src, op)
    common = (op_dtype, out_dtype, async_op, backward_options)
    recipe = recipe_for("all_reduce", x, axis, src, dst, common)
    comm = communicator(axis)
    if not inplace:
        reduced = perform(x, recipe, comm)
        return reduced / comm.size if op == "avg" else reduced
    if op_dtype is not None or out_dtype is not None:
        raise SpmdValueError(
            "all_reduce with inplace=True writes into its operand and cannot change the dtype",
            code="SW208",
            help=("all_reduce(x, axis, dst=R, op_dtype=...) without inplace",),
        )
    reduced = perform_in_place(x, recipe, comm)
    return reduced.div_(comm.size) if op == "avg" else reduced


def _reduced_source(name: str, src: PerMeshAxisSpmdType, op: str) -> PerMeshAxisSpmdType:
    """What the operand is read as. Errors: SW208 for an unknown op, or one that contradicts ``src``."""
    if op not in ("sum", "avg", "max", "min"):
        raise SpmdArgumentError(
            f"op of {name} is one of 'sum', 'avg', 'max' and 'min', got {shown(op)}",
            code="SW208",
            help=("torch.distributed.all_reduce(x, op=...) takes other reductions, of V",),
        )
    read = reduced_source(src, op)
    if op != "sum" and isinstance(read, PerMeshAxisLocalSpmdType) and read.is_extremum and read is not P(op):
        raise SpmdValueError(f"{name} with op={op!r} cannot finish what is {read}", code="SW208")
    return read


@typed_call("all_gather")
def all_gather(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = V,
    dst: PerMeshAxisSpmdType,
    gather_dim: int | None = None,
    split_sizes: Sequence[int] | None = None,
    op_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
    async_op: bool = False,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """The ranks' tensors as one, on every rank.

    Shapes:  src=V stacks on a new dim ``gather_dim`` (default 0); src=S(i) concatenates along dim i, of the ranks'
             ``split_sizes`` if they differ.
    Types:   V or S(i) -> R or I. Gradient: reduce_scatter for R, taking one's own piece for I.
    Errors:  SW202; SW205 if gather_dim is not i; SW206 for split sizes; SW208; SW209; SW211.
    Source:  op_rules/transitions.py, rows "all_gather".
    Example:
        >>> x = assert_type(torch.ones(2, 8), {"tp": S(0)})
        >>> print(typeof(all_gather(x, "tp", src=S(0), dst=R)))
        f32[8, 8] {dp: R, tp: R}
    """
    common = (op_dtype, out_dtype, async_op, backward_options)
    recipe = recipe_for("all_gather", x, axis, src, dst, common, dim=gather_dim)
    if split_sizes is None:
        return perform(x, recipe, communicator(axis))
    if not isinstance(src, Shard):
        raise SpmdValueError("split_sizes are only supported with src=S(i), got src=V", code="SW208")
    return perform(x, recipe, communicator(axis), frozen_sizes(split_sizes))


@typed_call("reduce_scatter")
def reduce_scatter(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = P,
    dst: PerMeshAxisSpmdType = V,
    op: str = "sum",
    scatter_dim: int | None = None,
    split_sizes: Sequence[int] | None = None,
    op_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
    async_op: bool = False,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """Sum ``x`` over ``axis``, or take its ``op`` ("avg", "max", "min"), and keep this rank's piece.

    Shapes:  dst=V takes this rank's entry along ``scatter_dim`` (default 0), whose size is the number of ranks, and
             drops the dim; dst=S(i) cuts dim i evenly, or by ``split_sizes``.
    Types:   P -> V or S(i) (V is read as P). Gradient: all_gather -> R. P("max") and P("min") by that op.
    Errors:  SW202; SW204 if dim i cannot be cut evenly; SW205; SW206; SW208; SW211.
    Source:  op_rules/transitions.py, rows "reduce_scatter".
    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": P})
        >>> print(typeof(reduce_scatter(x, "tp", src=P, dst=S(0))))
        f32[1, 8] {dp: R, tp: V}
    """
    if op != "sum":
        src = _reduced_source("reduce_scatter", src, op)
    common = (op_dtype, out_dtype, async_op, backward_options)
    recipe = recipe_for("reduce_scatter", x, axis, src, dst, common, dim=scatter_dim)
    comm = communicator(axis)
    if split_sizes is not None and not isinstance(dst, Shard):
        raise SpmdValueError("split_sizes are only supported with dst=S(i), got dst=V", code="SW208")
    piece = perform(x, recipe, comm, frozen_sizes(split_sizes))
    return piece / comm.size if op == "avg" else piece


@typed_call("all_to_all")
def all_to_all(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = V,
    dst: PerMeshAxisSpmdType = V,
    split_dim: int | None = None,
    concat_dim: int | None = None,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    op_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
    async_op: bool = False,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """Every rank sends one piece of ``x`` to every rank, and joins what arrives.

    Shapes:  V -> V: entry j along ``split_dim`` goes to rank j, arrivals are stacked along ``concat_dim``;
             S(i) -> S(j): dim j is cut, arrivals are joined along dim i; with split sizes, along dim 0 on both sides.
    Types:   V or S(i) -> V or S(j). Gradient: the same exchange backwards.
    Errors:  SW202; SW204 if a dim cannot be cut evenly; SW205; SW206; SW208; SW211.
    Source:  op_rules/transitions.py, rows "all_to_all".
    Example:
        >>> x = assert_type(torch.ones(2, 8), {"tp": S(0)})
        >>> print(typeof(all_to_all(x, "tp", src=S(0), dst=S(1))))
        f32[8, 2] {dp: R, tp: V}
    """
    uneven = output_split_sizes is not None or input_split_sizes is not None
    if uneven and src is V and dst is V:
        # Uneven pieces are pieces, not entries: the dims are kept.
        src, dst = Shard(concat_dim or 0), Shard(split_dim or 0)
    common = (op_dtype, out_dtype, async_op, backward_options)
    recipe = recipe_for("all_to_all", x, axis, src, dst, common, dim=split_dim, other_dim=concat_dim)
    comm = communicator(axis)
    if not uneven:
        return perform(x, recipe, comm)
    if recipe.dim or recipe.other_dim:
        raise SpmdValueError(
            f"split sizes cut and join along dim 0, got split dim {recipe.dim} and concat dim {recipe.other_dim}",
            code="SW208",
            help=("x.movedim(dim, 0) before the exchange and back after it",),
        )
    even = None if x.shape[0] % comm.size else (x.shape[0] // comm.size,) * comm.size
    received, sent = frozen_sizes(output_split_sizes) or even, frozen_sizes(input_split_sizes) or even
    if received is None or sent is None:
        raise SpmdValueError(
            f"only one side's split sizes are given, and dim 0 of size {x.shape[0]} cannot be cut evenly over "
            f"{comm.size} ranks for the other",
            code="SW204",
            help=("give both output_split_sizes and input_split_sizes",),
        )
    return perform(x, recipe, comm, (received, sent))


@typed_call("unshard")
def unshard(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    **options: Unpack[GatherOptions],
) -> Tensor:
    """``all_gather`` of a tensor whose pieces belong together: src must be S(i). Options are all_gather's.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": S(0)})
        >>> print(typeof(unshard(x, "tp", src=S(0), dst=R)))
        f32[16, 8] {dp: R, tp: R}
    """
    if not isinstance(src, Shard):
        raise SpmdValueError(
            f"src of unshard must be S(i), got {shown(src)}",
            code="SW202",
            help=(f"all_gather(x, axis, src={shown(src)}, dst={shown(dst)})",),
        )
    return all_gather(x, axis, src=src, dst=dst, **options)
