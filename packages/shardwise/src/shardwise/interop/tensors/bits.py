"""The bits of a tensor, and a digest of them: by what tensors are compared that do not lie in one process."""

from __future__ import annotations

import hashlib

import torch

from shardwise.interop.torch_compat import no_torch_function


def bytes_of(x: torch.Tensor) -> bytes:
    """The elements of a strided tensor that has values, row by row, wherever it lies."""
    with no_torch_function(), torch.no_grad():
        return x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""


def digest_of(x: torch.Tensor) -> bytes:
    """16 bytes that are equal for tensors of equal bits, shapes and dtypes."""
    hashed = hashlib.blake2b(f"{x.dtype}{tuple(x.shape)}".encode(), digest_size=16)
    hashed.update(bytes_of(x))
    return hashed.digest()
