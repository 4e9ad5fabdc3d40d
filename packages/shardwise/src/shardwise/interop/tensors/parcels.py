"""Objects as bytes for another process, tensors of any dtype in them.

Torch pickles float8, half complex and unsigned tensors so that nobody can read them; they travel as their bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import TypeAlias, cast

import torch

_PICKLED = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool}
    | {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
)
"""The dtypes of which torch can read what it has pickled."""

_Reduced: TypeAlias = tuple[Callable[..., torch.Tensor], tuple[object, ...]]
_LEFT_TO_TORCH = cast(_Reduced, NotImplemented)


def packed(value: object) -> bytes:
    """``value`` as ``pickle.loads`` reads it. Errors: those of ``pickle.dumps``."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> _Reduced:
        if value.__class__ is not torch.Tensor or not isinstance(value, torch.Tensor) or value.dtype in _PICKLED:
            return _LEFT_TO_TORCH
        if value.is_quantized or value.is_meta or value.layout is not torch.strided:
            return _LEFT_TO_TORCH
        flat = value.detach().cpu().contiguous().reshape(-1)
        return _unpacked, (flat.view(torch.uint8), value.dtype, tuple(value.shape))


def _unpacked(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return data.view(dtype).reshape(shape)
