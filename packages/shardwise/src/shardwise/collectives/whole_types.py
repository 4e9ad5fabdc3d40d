"""``redistribute`` between whole types: what is asked for, planned once for every shape and pair of types, and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.interop.annotations.annotating import asserted_type
from shardwise.interop.calls.dispatch import typed_call
from shardwise.interop.communication.joined_groups import joined_groups
from shardwise.interop.communication.process_groups import communicator
from shardwise.mesh.normalize import normalize_axis
from shardwise.planner.links import UNIFORM, Links
from shardwise.planner.plans import Plan
from shardwise.planner.route import even_shape, plan
from shardwise.types.aliases import BackwardOptions, DeviceMeshAxis
from shardwise.types.spec import entry_axes
from shardwise.types.spmd_type import TypeClaim
from shardwise.types.tensor_type import TensorType

from .plan_steps import MovedTensor, chunk, run_step

Speeds = Mapping[DeviceMeshAxis, float] | Mapping[str, float]
"""A number by axis."""


def redistribute_types(
    x: Tensor,
    src_spec: TypeClaim,
    dst_spec: TypeClaim,
    *,
    shape: Sequence[int] | None = None,
    max_bytes: int | None = None,
    bandwidth: Speeds | None = None,
    latency_s: Speeds | None = None,
    op_dtype: torch.dtype | None = None,
    backward_options: BackwardOptions | None = None,
) -> Tensor:
    """``redistribute`` with whole types; see there."""
    if not isinstance(x, Tensor):
        raise SpmdArgumentError(f"redistribute takes a tensor, got one of type {type(x).__name__}", code="SW905")
    if dst_spec is None:
        raise SpmdArgumentError(
            "redistribute takes a whole type before and one after, or an axis with src and dst",
            code="SW905",
            help=(
                "redistribute(x, {'dp': S(0), 'tp': R}, {'dp': R, 'tp': S(0)})",
                "redistribute(x, 'tp', src=P, dst=R)",
            ),
        )
    src, dst = asserted_type((src_spec,), x.ndim), asserted_type((dst_spec,), x.ndim)
    whole = even_shape(tuple(x.shape), src.spec) if shape is None else _checked_shape(x, src, shape)
    links = UNIFORM if not bandwidth and not latency_s else Links.of(_by_axis(bandwidth), _by_axis(latency_s))
    groups, together = joined_groups()
    dtype = str(op_dtype or x.dtype).removeprefix("torch.")
    way = plan(whole, dtype, src, dst, links=links, together=together, max_bytes=max_bytes)
    common = (op_dtype, None if op_dtype is None else x.dtype, False, backward_options)
    return _moved(x, way, dst, MovedTensor(whole, groups, common))


@typed_call("redistribute_types")
def _moved(x: Tensor, way: Plan, dst: TensorType, moved: MovedTensor) -> Tensor:
    """``x`` after all steps of the plan."""
    for step in way.steps:
        x = run_step(x, step, moved)
    return x


def _by_axis(given: Speeds | None) -> dict[object, float]:
    return {normalize_axis(axis): value for axis, value in (given or {}).items()}


def _checked_shape(x: Tensor, src: TensorType, shape: Sequence[int]) -> tuple[int, ...]:
    """The global shape. Errors: SW206 if this rank's tensor is not its part of it."""
    try:
        whole = tuple(torch.Size(shape))
    except TypeError:
        raise SpmdArgumentError(
            f"shape of redistribute is the global shape, got {shown(shape)}", code="SW905"
        ) from None
    expected = []
    for length, entry in zip(whole, src.spec or (None,) * len(whole), strict=False):
        for axis in entry_axes(entry):
            length = chunk(length, axis.size(), communicator(axis).rank)[1]
        expected.append(length)
    if tuple(expected) != tuple(x.shape):
        raise SpmdValueError(
            f"of a tensor of shape {list(whole)} that is cut as src_spec says, this rank holds {expected}, and x has "
            f"{list(x.shape)}",
            code="SW206",
            help=(
                "shards are cut as torch.chunk cuts: ceil(length / ranks) elements, and the last have fewer or none",
            ),
        )
    return whole
