"""What goes to another process comes there as it was, whatever its tensors hold."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
import torch

from shardwise.interop.tensors.parcels import packed

DTYPES = sorted(
    {one for one in vars(torch).values() if isinstance(one, torch.dtype) and one.itemsize}
    - {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4},
    key=str,
)
"""Quantized tensors are torch's to pickle."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_tensor_of_any_dtype_comes_as_it_was(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    size = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
    try:
        sent = (torch.arange(size, dtype=torch.uint8) % 2).view(dtype).reshape(shape)
    except RuntimeError:
        pytest.skip("torch has no such tensors here")
    (got, shared), other = pickle.loads(packed(([sent, sent], Fraction(1, 3))))
    assert other == Fraction(1, 3)
    assert got is shared
    assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
    assert torch.equal(got.reshape(-1).view(torch.uint8), sent.reshape(-1).view(torch.uint8))


def test_pieces_of_a_transposed_tensor_come_in_their_order() -> None:
    sent = torch.arange(6.0).view(2, 3).to(torch.float8_e4m3fn).T[1:]
    assert torch.equal(pickle.loads(packed(sent)).float(), sent.float())


def test_a_view_travels_without_the_memory_around_it() -> None:
    assert len(packed(torch.arange(1000.0)[2:4])) < 500


@pytest.mark.parametrize(
    "sent", [torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag, torch.ones(2, 2).to_sparse()]
)
def test_what_is_only_written_otherwise_comes_as_its_values(sent: torch.Tensor) -> None:
    assert torch.equal(pickle.loads(packed(sent)).to_dense(), sent.to_dense())


def test_a_tensor_that_requires_a_gradient_goes_on_to() -> None:
    assert pickle.loads(packed(torch.ones(2, requires_grad=True))).requires_grad


def test_a_quantized_tensor_and_a_parameter_are_left_to_torch() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    assert isinstance(pickle.loads(packed(parameter)), torch.nn.Parameter)
