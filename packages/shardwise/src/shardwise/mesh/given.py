"""What a program gives as a mesh, read: a DeviceMesh, JAX's Mesh, a dict of axes, a set of axes, or process groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError, shown
from shardwise.types.aliases import MeshArgument
from shardwise.types.axis_names import note_names
from shardwise.types.tensor_type import constant_type

from .axis import MeshAxis
from .entry import CurrentMesh, current_entry
from .index_map import index_map_of
from .layout import Layout
from .orthogonal import check_orthogonal


def mesh_of(axes: MeshArgument | None) -> CurrentMesh:
    """The entry that ``set_current_mesh(axes)`` would make current.

    Example:
        >>> mesh_of({"tp": MeshAxis.of(4, 1)}).names["tp"].size()
        4
    """
    if axes is None:
        return _again()
    parts = _read(axes)
    kept = frozenset(axis for axis in parts.axes if axis.size() > 1)
    ordered = outermost_first(kept)
    note_names(parts.names)
    check_orthogonal(ordered, "the mesh", parts.names)
    return CurrentMesh(
        axes=kept,
        ordered_axes=ordered,
        names=MappingProxyType({name: axis for name, axis in parts.names.items() if axis.size() > 1}),
        all_names=MappingProxyType(parts.names),
        groups=MappingProxyType(parts.groups),
        named_groups=MappingProxyType(parts.named_groups),
        local_axes=frozenset(),
        constant=constant_type(ordered),
        zero=constant_type(ordered, zero=True),
        outer=current_entry(),
        device_mesh=axes if hasattr(axes, "get_group") else None,
    )


def _again() -> CurrentMesh:
    entry = current_entry()
    if entry is None:
        raise SpmdTypeError(
            "set_current_mesh() without axes takes the current mesh again, and there is none",
            code="SW904",
            help=("set_current_mesh(device_mesh)",),
        )
    return replace(entry, local_axes=frozenset(), outer=entry)


@dataclass
class _Parts:
    axes: list[MeshAxis] = field(default_factory=list)
    names: dict[str, MeshAxis] = field(default_factory=dict)
    groups: dict[MeshAxis, Any] = field(default_factory=dict)
    named_groups: dict[str, Any] = field(default_factory=dict)

    def add(self, given: object, name: str | None = None) -> None:
        """Take in an axis or a process group."""
        axis = _axis_in_mesh(given)
        self.axes.append(axis)
        if name is not None:
            self.names[name] = axis
        if given is not axis:
            self.groups.setdefault(axis, given)
            if name is not None:
                self.named_groups[name] = given


def _read(axes: object) -> _Parts:
    parts = _Parts()
    if hasattr(axes, "mesh_dim_names") and hasattr(axes, "get_group"):
        if axes.mesh_dim_names is None:
            raise SpmdValueError(
                "the DeviceMesh has no dim names, so its axes cannot be named",
                code="SW903",
                help=(
                    'init_device_mesh(..., mesh_dim_names=("dp", "tp"))',
                    'set_current_mesh({"dp": MeshAxis.of(2, 4), "tp": MeshAxis.of(4, 1)})',
                ),
            )
        for name in axes.mesh_dim_names:
            parts.add(axes.get_group(name), name)
    elif hasattr(axes, "axis_names") and hasattr(axes, "devices"):
        for name, axis in _axes_of_devices(axes).items():
            parts.add(axis, name)
    elif isinstance(axes, Mapping):
        for name, given in axes.items():
            if not isinstance(name, str):
                raise _no_mesh(f"a dict with the key {shown(name)}, which is no name")
            parts.add(given, name)
    elif isinstance(axes, Iterable) and not isinstance(axes, (str, bytes)):
        for given in axes:
            parts.add(given)
        repeated = [axis for axis, count in Counter(parts.axes).items() if count > 1 and axis.size() > 1]
        if repeated:
            raise SpmdTypeError(
                f"{repeated[0]!r} is used twice in the mesh: an axis is not orthogonal to itself", code="SW901"
            )
    else:
        raise _no_mesh(f"{shown(axes)} of type {type(axes).__name__}")
    return parts


def is_mesh(value: object) -> bool:
    """A mesh of torch, of JAX or one of ours; other values may be read as one, as a dict of process groups."""
    torchs, jaxs = ("mesh_dim_names", "get_group"), ("axis_names", "devices")
    return isinstance(value, CurrentMesh) or any(all(hasattr(value, one) for one in has) for has in (torchs, jaxs))


def _axes_of_devices(mesh: Any) -> dict[str, MeshAxis]:
    """Those of a ``jax.sharding.Mesh``: an array of devices with a name for each dim; a device's ``id`` is its rank."""
    ids = [device.id for device in mesh.devices.flat]
    found = index_map_of(ids, mesh.devices.shape)
    if found is None:
        raise SpmdValueError(
            f"the devices {shown(ids)} of the mesh follow no strides, so its dims are no mesh axes", code="SW903"
        )
    layouts = [Layout(*mode) if mode[0] > 1 else Layout() for mode in found.modes]
    return dict(zip(map(str, mesh.axis_names), map(MeshAxis, layouts), strict=True))


def _axis_in_mesh(given: object) -> MeshAxis:
    if isinstance(given, (str, int)):
        raise _no_mesh(f"{shown(given)} of type {type(given).__name__} as one of its axes")
    return MeshAxis.of(given)


def _no_mesh(got: str) -> SpmdArgumentError:
    return SpmdArgumentError(
        f"a mesh is a DeviceMesh, a dict from names to axes, a set of axes or a sequence of process groups, got {got}",
        code="SW903",
        help=("set_current_mesh(device_mesh)", 'set_current_mesh({"tp": MeshAxis.of(4, 1)})'),
    )


def outermost_first(axes: Iterable[MeshAxis]) -> tuple[MeshAxis, ...]:
    return tuple(sorted(axes, key=lambda axis: axis.sort_key))
