"""When do two computations of one number agree? Equal up to the rounding of the coarsest dtype that took part.

Shards are summed in another order than the whole, so the last digits differ, by an amount in proportion to the largest
terms. Double precision tells the smallest lies from that, and is what most samples have; the single precision in which
programs run is tried beside it, for rules that depend on the dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

ROUGH = {
    torch.float32: (1e-4, 2e-5),
    torch.complex64: (1e-4, 2e-5),
    torch.float16: (1e-2, 1e-2),
    torch.complex32: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
}
"""Dtypes coarser than double precision: relative tolerance, and absolute tolerance per unit of the largest element."""
_FINE = (1e-7, 1e-9)
_SAME = {torch.float32: (1e-6, 1e-7), torch.complex64: (1e-6, 1e-7)}
_WIDER = {torch.complex32: torch.complex64, torch.uint64: torch.int64, torch.uint32: torch.int64}
"""Dtypes that do not add, and others with the same sums (modulo 2**64)."""


def coarsest(tensors: Iterable[torch.Tensor]) -> torch.dtype | None:
    """The dtype with the least precision among those coarser than double; None if there is none."""
    rough = [tensor.dtype for tensor in tensors if tensor.dtype in ROUGH]
    return max(rough, key=lambda dtype: ROUGH[dtype][0], default=None)


def close(found: torch.Tensor, wanted: torch.Tensor, *, rough: torch.dtype | None = None) -> bool:
    """Equal up to rounding in their dtype or in ``rough``, whichever is coarser; shapes must agree."""
    if found.shape != wanted.shape:
        return False
    found, wanted_dtype = addable(found.to(wanted.dtype)), wanted.dtype
    wanted = addable(wanted)
    dtypes = [dtype for dtype in (rough, wanted_dtype) if dtype in ROUGH]
    rtol, atol = max((ROUGH[dtype] for dtype in dtypes), default=_FINE)
    if dtypes and wanted.numel() and wanted.dtype is not torch.bool:
        atol *= max(1.0, float(wanted.detach().abs().nan_to_num(nan=0.0, posinf=0.0).max()))
    return torch.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True)


def same(first: torch.Tensor, other: torch.Tensor) -> bool:
    """The same bits, but for the last ones of library kernels whose order of summation depends on where memory lies."""
    first, other = addable(first), addable(other)
    if torch.equal(first, other):
        return True
    if first.shape != other.shape or not (first.is_floating_point() or first.is_complex()):
        return False
    rtol, atol = _SAME.get(first.dtype, (1e-12, 1e-14))
    return torch.allclose(first, other, rtol=rtol, atol=atol, equal_nan=True)


def total(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of the ranks' tensors, in a dtype that has sums."""
    return torch.stack([addable(piece.detach()) for piece in pieces]).sum(0)


def addable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a dtype that can be added and compared."""
    wider = _WIDER.get(tensor.dtype)
    return tensor if wider is None else tensor.to(wider)
