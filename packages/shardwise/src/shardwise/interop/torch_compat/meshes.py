"""Device meshes: how they are made."""

from __future__ import annotations

from typing import Any

import torch

from .registry import patch_point, private


@private(
    "torch.distributed.device_mesh.DeviceMesh.__init__(_layout)",
    "torch.distributed.device_mesh.DeviceMesh.__init__(_rank_map)",
    lost="verifying a program with a mesh of its own",
)
def mesh_of_one_rank(args: tuple[object, ...], options: dict[str, Any]) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments of ``DeviceMesh`` with one rank along every axis, rank 0. Meshes are given by their ranks, or, by
    ``init_device_mesh``, by a layout."""
    layout, ranks = options.get("_layout"), args[1] if len(args) > 1 else options.get("mesh")
    if layout is not None and layout.numel() > 1:
        ones = layout.from_sizes_strides((1,) * len(layout))
        return args, {**options, "_layout": ones, "_rank_map": torch.zeros(1, dtype=torch.int, device="cpu")}
    if ranks is None:
        return args, options
    zero = torch.zeros((1,) * torch.as_tensor(ranks, device="cpu").ndim, dtype=torch.int, device="cpu")
    if len(args) > 1:
        return (args[0], zero, *args[2:]), options
    return args, {**options, "mesh": zero}


@private(
    "torch.distributed.device_mesh.DeviceMesh.__init__(_root_mesh)", lost="verifying a program with a mesh of its own"
)
def is_part_of_mesh(options: dict[str, object]) -> bool:
    """True if ``DeviceMesh`` is called with these arguments to make a part of another mesh."""
    return options.get("_root_mesh") is not None


@private(
    "torch.distributed.device_mesh.DeviceMesh._get_root_mesh",
    "torch.distributed.device_mesh.DeviceMesh:_flatten_mapping",
    lost="one collective over several axes in redistribute of whole types, which then takes one axis after another",
    tier=2,
)
def flattened_meshes(device_mesh: Any) -> dict[str, object]:
    """The meshes of one dim that ``_flatten`` has made of dims of ``device_mesh``, by name."""
    try:
        found: dict[str, Any] = device_mesh._get_root_mesh()._flatten_mapping
    except AttributeError:
        return {}
    return found


CUT_AXIS = patch_point(
    "torch.distributed.device_mesh.DeviceMesh._unflatten",
    purpose="makes a mesh of another one by cutting an axis in several; it counts as a mesh of its own",
    lost="types in programs that cut their mesh once more",
    tier=2,
)
