"""How does one tensor speak about another presentation of its ranks? ``reinterpret_mesh``; no data moves.

The algorithm is ``mesh/regions.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard, cast

import torch

from shardwise.diagnostics.errors import SpmdTypeError, shown
from shardwise.diagnostics.source import user_site
from shardwise.interop.annotations.asserting import is_unspoken, ndim_of, settle
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.calls.tracing import is_tracing, log_call
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, typed_shape
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import mesh_of
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import normalize_local_type
from shardwise.mesh.regions import reinterpret
from shardwise.types.aliases import AxisLike, MeshArgument
from shardwise.types.notation import format_type
from shardwise.types.placement import PerMeshAxisLocalSpmdType
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

OP = "reinterpret_mesh"

LocalTypesArgument = Mapping[str, PerMeshAxisLocalSpmdType] | Mapping[AxisLike, PerMeshAxisLocalSpmdType]
"""A whole local type, by names or by axes."""


@boundary
def reinterpret_mesh(
    tensor: torch.Tensor, type: MeshArgument | LocalTypesArgument, *, inplace: bool = False
) -> torch.Tensor:
    """``tensor`` with its type said on the axes of another mesh over the same ranks.

    ``type`` is the whole local type on the new axes, or just the new axes: a set of axes, a DeviceMesh or a sequence of
    process groups. Returns an alias with the new type, or ``tensor`` itself if ``inplace``. Where nothing is checked,
    the alias of a tensor without a type has none. Under torch.compile, and when annotations are erased, it is
    ``tensor``.
    Errors: SW133 if the two meshes do not cover the same ranks or a type cannot move over, SW102 for a tensor without
    a type in a check.

    Example:
        >>> x = assert_type(torch.ones(4), {"dp": R, "tp": R})
        >>> print(typeof(reinterpret_mesh(x, {MeshAxis.of(8, 1)})))
        f32[4] {{dp,tp}: R}
    """
    if session.erased or torch.compiler.is_compiling():
        return tensor
    ndim_of(tensor)
    tag = tag_of(tensor)
    try:
        wanted, axes = _destination(type)
        if is_unspoken(tensor):
            return tensor if inplace else _alias(tensor)
        if tag is None:
            raise SpmdTypeError(
                "reinterpret_mesh needs a tensor with a type, and this one has none",
                code="SW102",
                help=("assert_type(x, ...) before",),
            )
        before = tag.current()
        after = reinterpret(before, axes, wanted, global_axes=_global_axes(axes))
    except SpmdTypeError as error:
        error.context = error.context or _context(tensor, type)
        if not settle(error, tensor, OP):
            raise
        before, after = UNKNOWN_TYPE, UNKNOWN_TYPE
    result = tensor if inplace else _alias(tensor)
    if tag is None or after is not before or not inplace:
        # Without the alias cell: what a view says on the axes of one mesh is not said on those of the other.
        set_tag(result, Tag(after, _origin(tag)))
    if is_tracing():
        log_call(user_site(), OP, [typed_shape(tensor, before)], typed_shape(result, after))
    return result


def _destination(
    type: MeshArgument | LocalTypesArgument,
) -> tuple[Mapping[MeshAxis, PerMeshAxisLocalSpmdType] | None, frozenset[MeshAxis]]:
    if isinstance(type, Mapping):
        wanted = normalize_local_type(cast(LocalTypesArgument, type))
        return wanted, frozenset(wanted)
    return None, mesh_of(type).axes


def _global_axes(axes: frozenset[MeshAxis]) -> frozenset[MeshAxis]:
    """Those along which the running check follows shards."""
    check, entry = session.current(), current_entry()
    if check is None or check.local:
        return frozenset()
    return axes if entry is None else axes - entry.local_axes


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    if session.current() is None:
        return torch.ops.aten.alias(tensor)  # type: ignore[no-any-return]
    with no_torch_function():
        return torch.ops.aten.alias(tensor)  # type: ignore[no-any-return]


def _origin(tag: Tag | None) -> Origin:
    old = None if tag is None else tag.origin
    first = next((one for one in old if one is not None), None) if isinstance(old, tuple) else old
    return Origin(user_site(), "said on another mesh here", first)


def _context(tensor: torch.Tensor, type: object) -> str:
    said = format_type(TensorType.of(type)) if _is_plain(type) else shown(type)
    return f"  In {OP}(\n    tensor: {typed_shape(tensor)},\n    type: {said},\n  )"


def _is_plain(type: object) -> TypeGuard[Mapping[MeshAxis, PerMeshAxisLocalSpmdType]]:
    return isinstance(type, Mapping) and all(isinstance(axis, MeshAxis) for axis in type)
