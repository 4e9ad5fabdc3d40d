"""One kind of call of a collective or coercion, as the caller gave it: the key under which its recipe is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import torch

from shardwise.types.aliases import BackwardOptions, DeviceMeshAxis
from shardwise.types.placement import PerMeshAxisSpmdType

Options = tuple[tuple[str, Any], ...]
"""Backward options as a hashable tuple of pairs."""


class Request(NamedTuple):
    """What is asked for, before anything is checked.

    ``dim``, ``other_dim``  the tensor dims that arguments name: gather_dim, scatter_dim, split_dim and concat_dim.
    ``options``             ``backward_options`` in hashable form.
    """

    op: str
    src: PerMeshAxisSpmdType
    dst: PerMeshAxisSpmdType
    dtype: torch.dtype
    ndim: int = 0
    dim: int | None = None
    other_dim: int | None = None
    op_dtype: torch.dtype | None = None
    out_dtype: torch.dtype | None = None
    async_op: bool = False
    options: Options | None = None
    expert_mode: bool = False


class CommonOptions(TypedDict, total=False):
    """Options that every collective and coercion takes."""

    op_dtype: torch.dtype | None
    out_dtype: torch.dtype | None
    async_op: bool
    backward_options: BackwardOptions | None


class GatherOptions(CommonOptions, total=False):
    """Options of ``all_gather``."""

    gather_dim: int | None
    split_sizes: Sequence[int] | None


class ConvertOptions(CommonOptions, total=False):
    """Options of ``convert``."""

    expert_mode: bool
    split_sizes: Sequence[int] | None


class RedistributeOptions(CommonOptions, total=False):
    """Options of whichever op ``redistribute`` takes."""

    gather_dim: int | None
    scatter_dim: int | None
    split_dim: int | None
    concat_dim: int | None


class WholeTypeOptions(TypedDict, total=False):
    """Options of ``redistribute`` between whole types."""

    shape: Sequence[int] | None
    max_bytes: int | None
    bandwidth: Mapping[DeviceMeshAxis, float] | Mapping[str, float] | None
    latency_s: Mapping[DeviceMeshAxis, float] | Mapping[str, float] | None
    op_dtype: torch.dtype | None
    backward_options: BackwardOptions | None
