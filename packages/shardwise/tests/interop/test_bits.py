"""The bits of tensors, and what tells them apart."""

from __future__ import annotations

import torch

from shardwise.interop.tensors.bits import bytes_of, digest_of


def test_digests_tell_bits_shapes_and_dtypes_apart():
    x = torch.arange(16, dtype=torch.float64).sin().view(4, 4)
    assert digest_of(x) == digest_of(x.t().contiguous().t())
    others = [x + 1e-15, x.view(2, 8), x.float(), x.bfloat16(), x.to(torch.complex64), x > 0, x[:0]]
    assert len({digest_of(other) for other in (x, *others)}) == len(others) + 1


def test_the_bytes_are_those_of_the_elements_row_by_row():
    x = torch.arange(6, dtype=torch.int16).view(2, 3).t()
    assert bytes_of(x) == b"".join(bytes([one, 0]) for one in (0, 3, 1, 4, 2, 5))
    assert bytes_of(x[:0]) == b""
