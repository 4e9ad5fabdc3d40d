"""FSDP: the parameters that it has taken apart, looked up where it has been loaded."""

from __future__ import annotations

import sys
from typing import Any

from .registry import patch_point, private

MAKE_PARAMETER = patch_point(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.__init__",
    purpose="where ``fully_shard`` takes a parameter apart, which has its type no more",
    lost="types of the parameters of fully_shard",
)
GATHER_PARAMETER = patch_point(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.init_unsharded_param",
    purpose="where ``fully_shard`` makes the gathered parameter, which gets a type",
    lost="types of the parameters of fully_shard",
)
USE_VIEWS = patch_point(
    "torch.distributed.fsdp._flat_param.FlatParamHandle._use_unsharded_views",
    purpose="where ``FullyShardedDataParallel`` makes parameters out of a flat one, which get types",
    lost="types of the parameters of FSDP1",
    tier=2,
)


@private(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:_unsharded_param",
    lost="types of the parameters of fully_shard",
)
def gathered_parameter(fsdp_param: object) -> object:
    """The gathered parameter of an ``FSDPParam``; None while there is none."""
    return getattr(fsdp_param, "_unsharded_param", None)


@private(
    "torch.distributed.fsdp._common_utils.FSDP_FLATTENED",
    lost="which parameters FSDP1 has",
    tier=2,
)
def is_flattened(value: object) -> bool:
    """True for the one parameter that FSDP1 makes of many, and for those of which it keeps a part each."""
    mark = getattr(sys.modules.get("torch.distributed.fsdp._common_utils"), "FSDP_FLATTENED", None)
    return mark is not None and getattr(value, mark, False) is True


@private(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:sharded_param",
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:mesh_info",
    lost="types of the gradients of fully_shard",
)
def sharded_parameter(fsdp_param: Any) -> tuple[Any, Any]:
    """What an ``FSDPParam`` keeps, a DTensor, and the mesh that it is sharded over."""
    return fsdp_param.sharded_param, fsdp_param.mesh_info.mesh


@private(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:_unsharded_param",
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:unsharded_accumulated_grad",
    lost="steps that are taken before fully_shard has summed its gradients",
    tier=2,
)
def keeps_gradient(fsdp_param: Any) -> bool:
    """True if an ``FSDPParam`` holds a gradient of its gathered parameter that it has not reduced."""
    gathered = getattr(fsdp_param, "_unsharded_param", None)
    return fsdp_param.unsharded_accumulated_grad is not None or (gathered is not None and gathered.grad is not None)


@private(
    "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState:_fsdp_param_groups",
    "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup:_partial_reduce_output",
    "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup:fsdp_params",
    lost="steps that are taken before fully_shard has summed its gradients over replicas",
    tier=2,
)
def held_over_replicas(module: object) -> list[object]:
    """The ``FSDPParam`` of a module whose gradients are scattered over shards and not yet summed over replicas."""
    groups = getattr(module._get_fsdp_state(), "_fsdp_param_groups", ())  # type: ignore[attr-defined]
    held = [group for group in groups if getattr(group, "_partial_reduce_output", None) is not None]
    return [fsdp_param for group in held for fsdp_param in group.fsdp_params]


@private(
    "torch.distributed.fsdp._flat_param.FlatParamHandle:flat_param",
    "torch.distributed.fsdp._flat_param.FlatParameter:_params",
    "torch.distributed.fsdp._flat_param.FlatParameter:_param_infos",
    lost="types of the parameters of FSDP1",
    tier=2,
)
def flat_parameters(handle: Any) -> list[tuple[object, object]]:
    """Per parameter of a ``FlatParamHandle``: the original, None where it is not kept, and the view in its module."""
    infos = handle.flat_param._param_infos
    originals = handle.flat_param._params or [None] * len(infos)
    views = [getattr(module, name) for name, module, *_ in infos]
    return list(zip(originals, views, strict=True))
