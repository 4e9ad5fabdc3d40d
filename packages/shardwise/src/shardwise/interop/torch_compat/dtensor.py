"""DTensors: the local tensor inside, and how one is entered and left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .pytree import tree_leaves
from .registry import patch_point, private

if TYPE_CHECKING:
    from torch.distributed.tensor.placement_types import Placement

PLACE_RESULT = patch_point(
    "torch.distributed.tensor._sharding_prop.ShardingPropagator.propagate_op_sharding_non_cached",
    purpose="where DTensor chooses how the results of a call that it has not seen are placed",
    lost="quick checks of programs with DTensors",
    tier=2,
)


@private("torch.distributed.tensor.DTensor:_local_tensor", lost="gradients of fully_shard and types across DTensor")
def local_tensor_of(dtensor: Any) -> torch.Tensor:
    """What this rank holds of a DTensor; ``to_local`` would make another tensor object, without a type."""
    local: torch.Tensor = dtensor._local_tensor
    return local


@private("torch.distributed.tensor._api._FromTorchTensor", lost="types into DTensor")
def enters_dtensor(function: type) -> bool:
    """True for the autograd function of ``DTensor.from_local``."""
    return function.__name__ == "_FromTorchTensor"


@private("torch.distributed.tensor._api._ToTorchTensor", lost="types out of DTensor")
def leaves_dtensor(function: type) -> bool:
    """True for the autograd function of ``DTensor.to_local``."""
    return function.__name__ == "_ToTorchTensor"


@private(
    "torch.distributed.tensor.placement_types._StridedShard",
    lost="shards of a dim that several mesh axes cut in another order than theirs",
)
def is_strided_shard(placement: object) -> bool:
    """True for a shard whose axis cuts a dim before an axis to its left does, as ``fully_shard`` after TP has them."""
    return type(placement).__name__ == "_StridedShard"


@private(
    "torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding",
    "torch._C._clear_DTensor_sharding_propagator_cache",
    lost="a second run in one process of a program with DTensors",
    tier=2,
)
def forget_dtensor_calls() -> None:
    """Results of DTensors have the mesh of the first call that was like theirs, whose groups may be gone since then.

    ``torch.distributed.tensor.debug`` would do it, but to import that is to import the compiler: a CPU second.
    """
    if "torch.distributed.tensor" in sys.modules:
        dispatcher: Any = torch.distributed.tensor.DTensor._op_dispatcher
        dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
        torch._C._clear_DTensor_sharding_propagator_cache()


@private(
    "torch.distributed.tensor._utils.ExplicitRedistributionContext",
    lost="the comparison of the rules with DTensor",
    tier=2,
)
def without_redistribution() -> contextlib.AbstractContextManager[object]:
    """Inside, an operator on DTensors raises RuntimeError where it would change a placement of an operand."""
    from torch.distributed.tensor._utils import ExplicitRedistributionContext

    return ExplicitRedistributionContext(strict=True)


@private(
    "torch.distributed.tensor._decompositions.DecompShardingStrategy",
    "torch.distributed.tensor._decompositions.DecompShardingStrategy._get_candidate_placements",
    "torch.distributed.tensor._decompositions._extract_input_specs",
    lost="the comparison of the rules with DTensor, for operators of many tensors, in less than minutes",
    tier=2,
)
@contextlib.contextmanager
def decompositions_without_redistribution() -> Iterator[None]:
    """Inside, DTensor runs an operator's decomposition on the operands' placements as they are, and on replicate ones.

    It runs all placements of all operands otherwise, thousands for a list of tensors, to find the cheapest change.
    """
    from torch.distributed.tensor import Replicate, _decompositions

    strategy: Any = _decompositions.DecompShardingStrategy
    specs: Any = _decompositions._extract_input_specs

    def as_they_are(op_schema: object) -> list[tuple[object, ...]]:
        leaves = tree_leaves(list(specs(op_schema)))
        own = tuple(leaf.placements[0] if hasattr(leaf, "placements") else None for leaf in leaves)
        return list(dict.fromkeys([own, tuple(place and Replicate() for place in own)]))

    before = vars(strategy)["_get_candidate_placements"]
    strategy._get_candidate_placements = staticmethod(as_they_are)
    try:
        yield
    finally:
        strategy._get_candidate_placements = before


@private(
    "torch.distributed.tensor._redistribute._gen_transform_infos_non_cached",
    "torch.distributed.tensor._dtensor_spec.DTensorSpec",
    "torch.distributed.tensor._dtensor_spec.TensorMeta",
    lost="what DTensor would do, beside a plan of ours",
    tier=2,
)
def redistribution_steps(
    device_mesh: Any,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    before: tuple[Placement, ...],
    after: tuple[Placement, ...],
) -> list[tuple[int, Any, Any]]:
    """What DTensor's ``redistribute`` does: the mesh dim, and the placement along it before and after."""
    from torch.distributed.tensor import _redistribute
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    strides = torch.empty(shape, device="meta").stride()
    meta = TensorMeta(torch.Size(shape), strides, dtype)
    source, target = (DTensorSpec(device_mesh, given, tensor_meta=meta) for given in (before, after))
    infos = _redistribute._gen_transform_infos_non_cached(source, target)
    return [(info.mesh_dim, *info.src_dst_placements) for info in infos]
