"""Objects as bytes for another process, tensors of any dtype in them.

A tensor travels as its own bytes. Torch pickles it with all of the memory that it is a view of, twenty times slower,
and float8, half complex and unsigned ones so that nobody can read them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import TypeAlias, cast

import torch

from .bits import bytes_of, tensor_of

_Reduced: TypeAlias = tuple[Callable[..., torch.Tensor], tuple[object, ...]]
_LEFT_TO_TORCH = cast(_Reduced, NotImplemented)


def packed(value: object) -> bytes:
    """``value`` as ``pickle.loads`` reads it. Errors: those of ``pickle.dumps``."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> _Reduced:
        if value.__class__ is not torch.Tensor or not isinstance(value, torch.Tensor):
            return _LEFT_TO_TORCH
        if value.is_quantized or value.is_meta or value.layout is not torch.strided:
            return _LEFT_TO_TORCH
        return _unpacked, (bytes_of(value), value.dtype, tuple(value.shape), value.device, value.requires_grad)


def _unpacked(
    data: bytes, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, requires_grad: bool
) -> torch.Tensor:
    return tensor_of(data, dtype, shape).to(device).requires_grad_(requires_grad)
