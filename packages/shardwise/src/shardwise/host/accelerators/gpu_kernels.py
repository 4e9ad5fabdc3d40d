"""Calls that a GPU takes and a CPU does not, done in another way: counts of whole numbers, attention of DTensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.torch_call import TorchFunction


def _histogram(func: TorchFunction, args: Any, kwargs: Any) -> object:
    """``torch.histc`` of whole numbers, as the tokens of experts are counted: on a GPU it takes them, on a CPU not."""
    x = args[0] if args else kwargs["input"]
    if x.is_floating_point() or kwargs.get("out") is not None:
        return func(*args, **kwargs)
    rest = {name: value for name, value in kwargs.items() if name != "input"}
    made: Any = func(x.double(), *args[1:], **rest)
    return made.to(x.dtype)


def _attention(func: TorchFunction, args: Any, kwargs: Any) -> object:
    """Attention of DTensors: each rank has batches and heads of its own, as for the kernels of GPUs; there is
    no sharding strategy for the kernel of a CPU."""
    named = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs
    given = [named.get(name) for name in ("query", "key", "value")]
    first: Any = given[0]
    alike = all(is_dtensor(x) and x.placements == first.placements for x in given)
    # Attention of a batch or a head needs nothing of other ranks.
    whole = alike and all(one.is_replicate() or one.is_shard(0) or one.is_shard(1) for one in first.placements)
    if not whole or is_dtensor(named.get("attn_mask")):
        return func(*args, **kwargs)
    local = {name: x.to_local() if is_dtensor(x) else x for name, x in named.items()}
    made: Any = func(**local, **dict(zip(("dropout_p", "is_causal"), args[4:], strict=False)))
    return type(first).from_local(made, first.device_mesh, first.placements, run_check=False)


GPU_KERNELS: dict[Any, Callable[..., object]] = {
    torch.nn.functional.scaled_dot_product_attention: _attention,
    torch.histc: _histogram,
    torch.Tensor.histc: _histogram,
}
