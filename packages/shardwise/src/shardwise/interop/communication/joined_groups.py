"""Which process groups run over several axes of the mesh at once? Those that the program has flattened, and all ranks.

None is made here: making one takes every rank of the job, and whoever moves a tensor may be a few of them.
"""

from __future__ import annotations

import sys
from typing import Any

from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.program import mesh_at_hand

from ..torch_compat import flattened_meshes
from . import backend

Joined = dict[MeshAxis, object]

_known: dict[tuple[int, int, int], tuple[object, Joined, frozenset[MeshAxis]]] = {}
_MOST = 64


def joined_groups() -> tuple[Joined, frozenset[MeshAxis]]:
    """The groups by the flattened axis that they run over, and these axes."""
    entry = mesh_at_hand()
    device_mesh = None if entry is None else entry.device_mesh
    world = sys.modules["torch.distributed"].group.WORLD
    flattened = {} if device_mesh is None else flattened_meshes(device_mesh)
    key = (id(device_mesh), len(flattened), id(world))
    known = _known.get(key)
    # What is remembered keeps the mesh alive, so an equal id is the same object.
    if known is None or known[0] is not device_mesh:
        found = {} if backend.is_replaced() else _found(device_mesh, flattened, world)
        if len(_known) >= _MOST:
            _known.clear()
        known = _known[key] = (device_mesh, found, frozenset(found))
    return known[1], known[2]


def _found(device_mesh: object, flattened: dict[str, Any], world: object) -> Joined:
    found: Joined = {}
    if world is None or (device_mesh is not None and not _ascends(device_mesh)):
        # Elsewhere a rank's place in a group is not the digits of its coordinates.
        return found
    for mesh in flattened.values():
        group = mesh.get_group()
        found[MeshAxis.of(group)] = group
    found[MeshAxis.of(world)] = world
    return found


def _ascends(device_mesh: Any) -> bool:
    ranks = device_mesh.mesh.flatten().tolist()
    return bool(ranks == sorted(ranks))
