"""What do kernels trust that they should check? Sizes and indices that must fit, or memory is read out of bounds.

On a rank's parts that do not fit, a careful operator raises. These crash the process or read what is not theirs, so the
sweep asks first. The checks see through function modes: they are no calls of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from shardwise.interop.torch_compat import without_torch_function


def check_arguments(op: str, arguments: tuple[Any, ...]) -> None:
    """Nothing if the kernel behind the database's ``op`` may run on these arguments. Errors: ValueError if not."""
    check = _CHECKS.get(op)
    # Other classes of tensors (DTensor, wrapped ones) are not asked about their elements.
    if check is not None and all(type(one) is torch.Tensor for one in arguments if isinstance(one, torch.Tensor)):
        with without_torch_function():
            check(*arguments)


def _batch_norm(input: torch.Tensor, *rest: Any) -> None:
    features = input.shape[1] if input.ndim > 1 else 0
    for tensor in rest:
        if isinstance(tensor, torch.Tensor) and tuple(tensor.shape) != (features,):
            raise ValueError(f"a statistic or weight of shape {tuple(tensor.shape)} for {features} features")


def _lu_unpack(lu: torch.Tensor, pivots: torch.Tensor, *_: Any) -> None:
    rows, columns = lu.shape[-2:]
    if pivots.shape != (*lu.shape[:-2], min(rows, columns)):
        raise ValueError(f"pivots of shape {tuple(pivots.shape)} for a matrix of shape {tuple(lu.shape)}")
    _in_range(pivots, rows)


def _ldl_solve(ld: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *_: Any) -> None:
    if ld.shape[-1] != ld.shape[-2] or pivots.shape != ld.shape[:-1]:
        raise ValueError(f"pivots of shape {tuple(pivots.shape)} for a matrix of shape {tuple(ld.shape)}")
    if b.shape[-2] != ld.shape[-1] or not _stretches_to(b.shape[:-2], ld.shape[:-2]):
        raise ValueError(f"a right-hand side of shape {tuple(b.shape)} for a matrix of shape {tuple(ld.shape)}")
    _in_range(pivots.abs(), ld.shape[-1])


def _stretches_to(batch: Sequence[int], wanted: Sequence[int]) -> bool:
    own = batch[-len(wanted) :] if wanted else ()
    return len(batch) <= len(wanted) and all(a in (1, b) for a, b in zip(own[::-1], wanted[::-1], strict=False))


def _in_range(pivots: torch.Tensor, rows: int) -> None:
    if bool(((pivots < 1) | (pivots > rows)).any()):
        raise ValueError(f"a pivot outside of the {rows} rows")


_CHECKS: dict[str, Callable[..., None]] = {
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_batch_norm_with_update": _batch_norm,
    "lu_unpack": _lu_unpack,
    "linalg.ldl_solve": _ldl_solve,
}
