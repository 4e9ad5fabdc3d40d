"""The bits of a tensor, and a digest of them: by what tensors are compared that do not lie in one process."""

from __future__ import annotations

import hashlib

import torch

from shardwise.interop.torch_compat import no_torch_function


def bytes_of(x: torch.Tensor) -> bytes:
    """The elements of a strided tensor that has values, row by row, wherever it lies."""
    with no_torch_function(), torch.no_grad():
        flat = x.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
        if flat.stride(0) != 1:  # a single element may count as contiguous all the same
            flat = flat.clone(memory_format=torch.contiguous_format)
        return flat.view(torch.uint8).numpy().tobytes()


def tensor_of(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor whose elements these are, in memory of its own."""
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


def digest_of(x: torch.Tensor) -> bytes:
    """16 bytes that are equal for tensors of equal bits, shapes and dtypes."""
    hashed = hashlib.blake2b(f"{x.dtype}{tuple(x.shape)}".encode(), digest_size=16)
    hashed.update(bytes_of(x))
    return hashed.digest()
