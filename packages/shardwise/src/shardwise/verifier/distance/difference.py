"""Are two tensors equal but for rounding, and if not, how do they differ? The first element, the size, a clean factor.

Sums are taken in another order on a mesh than on one rank, so equality is relative to the largest element; what
tolerance a dtype needs is one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from shardwise.oracle.reassemble import differences

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-2}
"""Relative to the largest element. Dtypes that are not listed (float8) are coarser still; integers are exact."""
COARSEST = 1e-1
_CANCELLED = 10.0
"""So many roundings of the largest number of a run may be all that is left of a sum whose terms cancel."""
_SAME_FACTOR = 1e-3
_TELLING = 1e-3
"""Elements below this fraction of the largest say nothing about a factor."""


@dataclass(frozen=True)
class Difference:
    """How ``actual`` differs from ``expected``.

    ``index``    of the first element that differs, in row-major order.
    ``count``    elements that differ, of ``total``.
    ``largest``  the largest difference; ``scale`` the largest element of what is expected.
    ``factor``   actual / expected, if it is the same for all elements that tell; else None.
    """

    index: tuple[int, ...]
    expected: float | complex | bool
    actual: float | complex | bool
    count: int
    total: int
    largest: float
    scale: float
    factor: float | None


def tolerance_of(tensors: Iterable[torch.dtype]) -> float:
    """How far values of these dtypes may be apart, relative to the largest: that of the coarsest; 0 without a float."""
    real = [_real(dtype) for dtype in tensors if dtype.is_floating_point or dtype.is_complex]
    return max((TOLERANCES.get(dtype, COARSEST) for dtype in real), default=0.0)


def _real(dtype: torch.dtype) -> torch.dtype:
    return {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}.get(
        dtype, dtype
    )


def left_over(dtype: torch.dtype, largest: float) -> float:
    """What may be left of numbers of at most ``largest`` that cancel in theory; 0 of what does not round."""
    return _CANCELLED * torch.finfo(dtype).eps * largest if dtype.is_floating_point else 0.0


def scale_of(*tensors: torch.Tensor) -> float:
    """The largest finite element of all, by absolute value; 0 if there is none."""
    return max((_largest(tensor) for tensor in tensors), default=0.0)


def _largest(tensor: torch.Tensor) -> float:
    if not tensor.numel():
        return 0.0
    wide = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)
    return float(wide.abs().nan_to_num(0.0, 0.0, 0.0).max())


def rms_of(x: torch.Tensor) -> float:
    """The root mean square of the finite elements; 0 if there is none."""
    wide = x.detach().to(torch.complex128 if x.is_complex() else torch.float64).abs().nan_to_num(0.0, 0.0, 0.0)
    return float(wide.square().mean().sqrt()) if x.numel() else 0.0


def difference(
    actual: torch.Tensor, expected: torch.Tensor, apart: float, typical: float | None = None
) -> Difference | None:
    """How two tensors of one shape differ by more than ``apart`` in some element; None if they do not.

    ``typical``  how far all elements together may be, by their root mean square.
    """
    if torch.equal(actual, expected) or not actual.numel():
        return None
    off = differences(actual, expected)
    wrong = off > apart
    if not bool(wrong.any()) and typical is not None and rms_of(off) > typical:
        wrong = off > typical
    if not bool(wrong.any()):
        return None
    first = int(wrong.flatten().to(torch.uint8).argmax())
    index = tuple(int(at) for at in torch.unravel_index(torch.tensor(first), actual.shape))
    return Difference(
        index,
        expected[index].item(),
        actual[index].item(),
        int(wrong.sum()),
        actual.numel(),
        float(off.max()),
        scale_of(expected),
        _factor(actual, expected),
    )


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one shape and the same elements, bit by bit."""
    return one.shape == other.shape and difference(one, other, 0.0) is None


def _factor(actual: torch.Tensor, expected: torch.Tensor) -> float | None:
    if actual.is_complex() or not actual.is_floating_point():
        return None
    actual, expected = actual.to(torch.float64).flatten(), expected.to(torch.float64).flatten()
    telling = expected.abs() > _TELLING * scale_of(expected)
    if not bool(telling.any()) or not bool(actual.isfinite().all() and expected.isfinite().all()):
        return None
    ratios = actual[telling] / expected[telling]
    middle = float(ratios.median())
    same = bool(((ratios - middle).abs() <= _SAME_FACTOR * max(abs(middle), _SAME_FACTOR)).all())
    return middle if same else None
