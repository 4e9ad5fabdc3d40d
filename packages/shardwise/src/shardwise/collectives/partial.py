"""Which contractions may leave a pending sum? Those that name the axes: linear, matmul, einsum, sum, mean.

Contracting a dim that is sharded over an axis gives every rank an addend of the result. These functions are the torch
functions of the same name, plus a claim that the result is P along the axes named; with checking off the claim is
erased and the plain torch call remains. Two spellings: ``out_partial_axes="tp"`` (one axis or a tuple), and
``axis``, ``src``, ``dst=P``, which also says what the operands are (tuples for several axes).

A mean is a sum divided by how many elements all ranks have together, which no rank can count alone.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.calls.dispatch import typed_call
from shardwise.mesh.normalize import normalize_axis
from shardwise.op_rules.partial_claim import PartialClaim
from shardwise.types.aliases import DeviceMeshAxes
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Shard

Dims = int | tuple[int, ...] | list[int]
"""One tensor dim, or several."""

Sources = PerMeshAxisSpmdType | Sequence[PerMeshAxisSpmdType | Sequence[PerMeshAxisSpmdType]]
"""What the operands are along an axis: one placement, or one per axis, or one per operand."""


Results = PerMeshAxisSpmdType | Sequence[PerMeshAxisSpmdType]
"""What the result is along an axis: one placement, or one per axis."""


def linear(
    x: Tensor,
    weight: Tensor,
    *bias_or_axis: Tensor | DeviceMeshAxes | Sources | None,
    bias: Tensor | None = None,
    axis: DeviceMeshAxes | None = None,
    src: Sources | None = None,
    dst: Results | None = None,
    out_partial_axes: DeviceMeshAxes | None = None,
) -> Tensor:
    """``torch.nn.functional.linear`` whose result is partial over the named axes.

    Also ``linear(x, weight, axis, src, dst)``; a tensor in third place is the bias.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": V})
        >>> w = assert_type(torch.ones(2, 8), {"tp": V})
        >>> print(typeof(linear(x, w, out_partial_axes="tp")))
        f32[4, 2] {dp: R, tp: P}
    """
    if bias_or_axis and (bias_or_axis[0] is None or isinstance(bias_or_axis[0], Tensor)):
        bias, bias_or_axis = bias_or_axis[0], bias_or_axis[1:]
    axis, src, dst = _positional("linear", bias_or_axis, axis, src, dst)
    return _linear(x, weight, bias, _claims("linear", axis, src, dst, out_partial_axes))


def matmul(
    x: Tensor,
    other: Tensor,
    *where: DeviceMeshAxes | Sources,
    axis: DeviceMeshAxes | None = None,
    src: Sources | None = None,
    dst: Results | None = None,
    out_partial_axes: DeviceMeshAxes | None = None,
) -> Tensor:
    """``torch.matmul`` whose result is partial over the named axes.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": V})
        >>> w = assert_type(torch.ones(8, 2), {"tp": V})
        >>> print(typeof(matmul(x, w, out_partial_axes="tp")))
        f32[4, 2] {dp: R, tp: P}
    """
    axis, src, dst = _positional("matmul", where, axis, src, dst)
    return _matmul(x, other, _claims("matmul", axis, src, dst, out_partial_axes))


def einsum(
    equation: str,
    *operands: Tensor,
    axis: DeviceMeshAxes | None = None,
    src: Sources | None = None,
    dst: Results | None = None,
    out_partial_axes: DeviceMeshAxes | None = None,
) -> Tensor:
    """``torch.einsum`` whose result is partial over the named axes.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": V})
        >>> w = assert_type(torch.ones(8, 2), {"tp": V})
        >>> print(typeof(einsum("ij,jk->ik", x, w, out_partial_axes="tp")))
        f32[4, 2] {dp: R, tp: P}
    """
    return _einsum(equation, operands, _claims("einsum", axis, src, dst, out_partial_axes))


def sum(
    x: Tensor,
    *dim_or_axis: Dims | DeviceMeshAxes | Sources | None,
    dim: Dims | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    axis: DeviceMeshAxes | None = None,
    src: Sources | None = None,
    dst: Results | None = None,
    out_partial_axes: DeviceMeshAxes | None = None,
) -> Tensor:
    """``torch.sum`` whose result is partial over the named axes.

    Also ``sum(x, axis, src=S(i), dst=P)``, which sums over tensor dim i unless ``dim`` says otherwise; an int, or a
    tuple of ints, in second place is ``dim``.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": V})
        >>> print(typeof(sum(x, 0, out_partial_axes="tp")))
        f32[8] {dp: R, tp: P}
    """
    if dim_or_axis and _is_dim(dim_or_axis[0]):
        dim, dim_or_axis = dim_or_axis[0], dim_or_axis[1:]
    axis, src, dst = _positional("sum", dim_or_axis, axis, src, dst)
    claims = _claims("sum", axis, src, dst, out_partial_axes)
    return _sum(x, _claimed_dims(claims) if dim is None else dim, keepdim, dtype, claims)


def mean(
    x: Tensor,
    *dim_or_axis: Dims | DeviceMeshAxes | Sources | None,
    dim: Dims | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    count: float | Scalar | Tensor | None = None,
    even: bool = False,
    axis: DeviceMeshAxes | None = None,
    src: Sources | None = None,
    dst: Results | None = None,
    out_partial_axes: DeviceMeshAxes | None = None,
) -> Tensor:
    """This rank's addend of a mean over all ranks: the sum of its elements over ``dim``, divided by the global count.

    ``count``  how many elements the mean is over, on all ranks of the axes named: a number, a ``Scalar``, or a tensor
               that broadcasts against the result; equal on the ranks of these axes (R or I). Left out, every rank is
               taken to have as many elements as this one, so shards must be even.
    ``even``   with ``count`` left out: asserts that they are.

    Shapes:  as ``torch.mean``; the arguments are those of ``sum``. An integral ``x`` gives a floating result.
    Types:   V or S(i) -> P along the axes named. Gradient: R -> V or S(i), every element gets 1 / count.
    Errors:  SW110 and SW114 for a count that is V or P; SW417 for uneven shards without a count; SW403 in global mode
             for a sharded dim whose axis is not named; SW135; SW212; SW905.
    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": V})
        >>> print(typeof(mean(x, 0, count=16, out_partial_axes="tp")))
        f32[8] {dp: R, tp: P}
    """
    if dim_or_axis and _is_dim(dim_or_axis[0]):
        dim, dim_or_axis = dim_or_axis[0], dim_or_axis[1:]
    axis, src, dst = _positional("mean", dim_or_axis, axis, src, dst)
    claims = _claims("mean", axis, src, dst, out_partial_axes)
    if dim is None:
        dim = _claimed_dims(claims)
    if isinstance(count, bool) or not (count is None or isinstance(count, (int, float, Scalar, Tensor))):
        raise SpmdArgumentError(
            f"count of mean is a number or a tensor, got {shown(count)} of type {type(count).__name__}", code="SW905"
        )
    if isinstance(count, int) and count.bit_length() > 63:
        raise SpmdValueError(f"count of mean is a number of elements below 2**63, got {count}", code="SW905")
    return _mean(x, dim, keepdim, dtype, count, even, claims)


@typed_call("partial_linear")
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, claims: tuple[PartialClaim, ...]) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


@typed_call("partial_matmul")
def _matmul(x: Tensor, other: Tensor, claims: tuple[PartialClaim, ...]) -> Tensor:
    return torch.matmul(x, other)


@typed_call("partial_einsum")
def _einsum(equation: str, operands: tuple[Tensor, ...], claims: tuple[PartialClaim, ...]) -> Tensor:
    return torch.einsum(equation, *operands)


@typed_call("partial_sum")
def _sum(
    x: Tensor, dim: Dims | None, keepdim: bool, dtype: torch.dtype | None, claims: tuple[PartialClaim, ...]
) -> Tensor:
    return torch.sum(x, dtype=dtype) if dim is None else torch.sum(x, dim, keepdim, dtype=dtype)


@typed_call("partial_mean")
def _mean(
    x: Tensor,
    dim: Dims | None,
    keepdim: bool,
    dtype: torch.dtype | None,
    count: float | Scalar | Tensor | None,
    even: bool,
    claims: tuple[PartialClaim, ...],
) -> Tensor:
    total = torch.sum(x, dtype=dtype) if dim is None else torch.sum(x, dim, keepdim, dtype=dtype)
    if count is None:
        own = x.numel() // total.numel() if total.numel() else 1
        return total / (own * math.prod(normalize_axis(claim.axis).size() for claim in claims))
    return total / (count.value if isinstance(count, Scalar) else count)


def _claimed_dims(claims: tuple[PartialClaim, ...]) -> tuple[int, ...] | None:
    """The tensor dims that the claims call sharded; None if they name none."""
    return tuple(dict.fromkeys(claim.src.dim for claim in claims if isinstance(claim.src, Shard))) or None


def _is_dim(value: object) -> TypeGuard[Dims | None]:
    if isinstance(value, (tuple, list)):
        return all(isinstance(item, int) for item in value)
    return value is None or isinstance(value, int)


def _positional(op: str, rest: tuple[object, ...], axis: object, src: object, dst: object) -> tuple[Any, Any, Any]:
    """axis, src, dst, of which the first few may have been given by position."""
    if len(rest) > 3:
        raise SpmdArgumentError(f"{op} takes at most axis, src and dst after its operands, got {rest!r}", code="SW905")
    given = {"axis": axis, "src": src, "dst": dst}
    for name, value in zip(given, rest, strict=False):
        if given[name] is not None:
            raise SpmdArgumentError(f"{op} got {name} twice: {shown(value)} and {shown(given[name])}", code="SW905")
        given[name] = value
    return given["axis"], given["src"], given["dst"]


def _claims(op: str, axis: object, src: object, dst: object, out_partial_axes: object) -> tuple[PartialClaim, ...]:
    if axis is None:
        if src is not None or dst is not None:
            raise SpmdArgumentError(f"{op} got src or dst without the axis they speak of", code="SW905")
        return tuple(PartialClaim(each) for each in _as_tuple(out_partial_axes))
    if out_partial_axes is not None:
        raise SpmdArgumentError(f"{op} takes out_partial_axes, or axis with src and dst, not both", code="SW905")
    axes = _as_tuple(axis)
    several = isinstance(axis, (tuple, list))
    sources = tuple(src) if several and isinstance(src, (tuple, list)) else (src,) * len(axes)
    results = _as_tuple(dst if dst is not None else P)
    if len(sources) != len(axes) or len(results) not in (1, len(axes)):
        raise SpmdValueError(
            f"{op} over the axes {shown(axes)} needs one src and one dst per axis, got src={shown(src)}, "
            f"dst={shown(dst)}",
            code="SW905",
        )
    if builtins.any(each is not P for each in results):
        raise SpmdValueError(
            f"{op} contracts without communication, so dst must be P, got {shown(dst)}",
            code="SW202",
            help=(f"all_reduce({op}(..., dst=P), axis, src=P, dst=R) to finish the sum",),
        )
    sources = tuple(tuple(source) if isinstance(source, list) else source for source in sources)
    for source in sources:
        for said in source if isinstance(source, tuple) else (source,):
            if not (said is None or isinstance(said, PerMeshAxisLocalSpmdType | Shard)):
                raise SpmdArgumentError(f"src of {op} is R, I, V, P or S(i), got {shown(said)}", code="SW905")
    return tuple(PartialClaim(each, source) for each, source in zip(axes, sources, strict=True))


def _as_tuple(value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
