"""Typed tensors in one word, and the one way in which checker tests look at refusals."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise import PerMeshAxisLocalSpmdType as Local
from shardwise.types.notation import parse
from shardwise.types.spec import partition_spec_get_shard


def make(place: str, *shape: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor with placement ``place`` on tp, e.g. ``make("P", 4, 4)``."""
    shape = shape or (4, 4)
    x = torch.ones(shape, dtype=dtype).requires_grad_(grad)
    x.__dict__.clear()  # made by a factory: forget that it is a constant
    return spmd.assert_type(x, {"tp": Local(place)})


def operand(text: str, **axes: Any) -> torch.Tensor:
    """A tensor with the typed shape that ``text`` says, ``operand("f32[8@tp, 4]")``; zeros where it is integral."""
    known = dict(spmd.current_mesh_names() or {}, **axes)
    said = parse(text, known)
    dtype = getattr(torch, said.dtype)
    x = torch.rand(said.shape, dtype=dtype) if dtype.is_floating_point else torch.zeros(said.shape, dtype=dtype)
    x.__dict__.clear()
    spmd.assert_type(x, dict(said.type.local), partition_spec=said.type.spec)
    for axis in said.type.uneven:
        spmd.assert_type(x, {axis: partition_spec_get_shard(said.type.spec, axis)}, even=False)
    return x


def place(x: Any, axis: str = "tp") -> str:
    """The placement of ``x`` on ``axis`` as a letter; empty if it has none."""
    found = spmd.maybe_get_axis_local_type(x, axis)
    return "" if found is None else repr(found)


@contextmanager
def refused(code: str, *words: str) -> Iterator[pytest.ExceptionInfo[spmd.SpmdTypeError]]:
    """The block raises a type error with this code, placed in the calling test, whose text has these words."""
    here = inspect.currentframe().f_back.f_back.f_code.co_filename  # type: ignore[union-attr]
    with pytest.raises(spmd.SpmdTypeError) as caught:
        yield caught
    finding = caught.value.finding
    assert finding is not None, f"no finding on {caught.value}"
    assert finding.code == code, f"{finding.headline}"
    assert finding.location is not None
    assert finding.location.file == here
    text = str(caught.value)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
