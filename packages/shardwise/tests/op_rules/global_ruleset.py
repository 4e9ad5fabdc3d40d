"""What does the checker's registry say about shardings? Asks it through the checker itself, for the global oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from shardwise import SpmdTypeError
from shardwise.checker import typecheck
from shardwise.checker.parts.row_orders import order_of
from shardwise.checker.patching.installation import installed
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import set_type, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.oracle.global_types import Report, check_claims
from shardwise.oracle.sharded_types import FAILURES, Answer, Placements
from shardwise.types.placement import P, PerMeshAxisSpmdType, Shard, V, to_local_type
from shardwise.types.spec import PartitionSpec, partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

_AXIS = MeshAxis.of(2, 1)


def ask(fn: Callable[..., Any], tensors: Sequence[torch.Tensor], placements: Placements) -> Answer:
    """The placements that the checker gives to the results of ``fn``, or why it refuses."""
    with set_current_mesh({"tp": _AXIS}):
        operands = [tensor.detach().clone() for tensor in tensors]
        for tensor, placement in zip(operands, placements, strict=True):
            set_type(tensor, _typed(placement, tensor.ndim))
        try:
            with typecheck(local=False):
                results = tensors_in(fn(*operands))
        except SpmdTypeError as error:
            return str(error.finding.headline if error.finding is not None else error)
        except FAILURES as error:
            return f"the call itself fails: {error}"
        if any(map(order_of, results)):
            return "the rows stand in an order of their own, so nothing is said of the whole result"
        return tuple(_placement(result) for result in results)


def differences(fn: Callable[..., Any], *tensors: torch.Tensor, sizes: Sequence[int] = (2, 3)) -> Report:
    """Where the rules and the numbers part for ``fn``."""
    with installed():
        return check_claims(fn, tensors, ask, sizes=sizes)


def _typed(placement: PerMeshAxisSpmdType, ndim: int) -> TensorType:
    spec = None
    if isinstance(placement, Shard):
        spec = PartitionSpec(*[_AXIS if dim == placement.dim else None for dim in range(ndim)])
    return TensorType.of({_AXIS: to_local_type(placement)}, spec)


def _placement(result: torch.Tensor) -> PerMeshAxisSpmdType | None:
    """The result's placement; None if it has none, or is varying without a dim that is sharded."""
    type = type_of(result)
    shard = partition_spec_get_shard(type.spec, _AXIS)
    if shard is not None:
        return shard
    place = type.get(_AXIS)
    if place is P and type.exponent(_AXIS) == 1:
        return P("avg")
    return None if place is V else place


def shown(report: Report, *refused: str) -> list[str]:
    """Everything that is wrong or missing, as text; ``refused``: facts whose refusal is meant, ``"P -> P"``."""
    meant = [one for one in report.missing if str(one.fact) in refused]
    assert len(meant) == len(refused), f"{refused} are not all refused"
    missing = [one for one in report.missing if one not in meant]
    return [f"wrong: {one}" for one in report.wrong] + [f"missing: {one}" for one in missing]
