"""Wrappers of modules: what a parameter and a class are called without what DDP, FSDP, torch.compile, torch.export and
activation checkpointing put into the names.

    _orig_mod.module.layers.0.weight        layers.0.weight
    FSDPTransformer                         Transformer
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..tensors.dtensors import is_dtensor

PARTS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_export_root.")
"""Components of names that wrappers add."""
_HELD = tuple(part.removesuffix(".") for part in PARTS[1:])
FORWARDING = frozenset(_HELD[:3])
"""Under which names a wrapper keeps a module whose attributes can be asked of the wrapper itself."""
_MIXED_IN = ("FSDPModule", "ReplicateModule")
"""Classes that ``fully_shard`` and ``replicate`` put before that of the module."""
_SHARDING = "FullyShardedDataParallel"
"""FSDP1's class, which is not imported for this."""


def plain_name(name: str) -> str:
    """The path of a module, parameter or buffer without what wrappers put into it."""
    for part in PARTS:
        if name.startswith(part):
            return plain_name(name.removeprefix(part))
        name = name.replace(f".{part}", ".")
    return name


def wrapped_by(module: torch.nn.Module) -> torch.nn.Module | None:
    """The module that ``module`` does nothing but wrap; None if it is no wrapper."""
    held = dict(module.named_children())
    if isinstance(module, DistributedDataParallel):
        return held["module"]
    return next((held[name] for name in _HELD if held.get(name) is not None), None)


def plain_class(module: torch.nn.Module) -> str:
    """The name of the class that the program has given to ``module``, or to what is wrapped by it."""
    inner = wrapped_by(module)
    if inner is not None:
        return plain_class(inner)
    bases = type(module).__bases__
    if len(bases) == 2 and bases[0].__name__ in _MIXED_IN:
        return bases[1].__name__
    return type(module).__name__


def is_data_parallel(module: torch.nn.Module) -> bool:
    """Is it wrapped so that several ranks share out the data, by DDP, FSDP1, ``fully_shard`` or ``replicate``?"""
    names = {cls.__name__ for cls in type(module).__mro__}
    if isinstance(module, DistributedDataParallel) or _SHARDING in names:
        group = module.process_group
        return isinstance(group, dist.ProcessGroup) and group.size() > 1
    # Axes of data parallelism are the first of a parameter's mesh.
    return not names.isdisjoint(_MIXED_IN) and any(
        is_dtensor(one) and one.device_mesh.size(0) > 1  # type: ignore[attr-defined]
        for one in module.parameters()
    )
