"""How does a program say what a tensor is? ``assert_type`` and its relatives.

They look at and change types, never data. With checking off they still work, so that a query can be answered; under
torch.compile, and when the annotation layer is erased, they return at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TypeVar

import torch

from shardwise.diagnostics.errors import SpmdArgumentError
from shardwise.interop.annotations.annotating import merge
from shardwise.interop.annotations.asserting import annotate, leaves
from shardwise.interop.annotations.retyping import mutate, reread
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import set_type, tag_of, type_of
from shardwise.mesh.normalize import normalize_axis
from shardwise.types.aliases import DeviceMeshAxis, PerMeshAxisSpmdTypesArg
from shardwise.types.placement import UNKNOWN, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType
from shardwise.types.spec import PartitionSpec
from shardwise.types.spmd_type import SpmdType, TypeClaim
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

T = TypeVar("T")

TypeOrTypes = PerMeshAxisSpmdType | PerMeshAxisSpmdTypesArg
"""One type, or a dict from axes to types."""


def _is_off() -> bool:
    return session.erased or torch.compiler.is_compiling()


@boundary
def assert_type(
    tensor: T, *types: TypeClaim, partition_spec: PartitionSpec | None = None, even: bool | None = None
) -> T:
    """State what ``tensor`` is: set its type, or check the type it has and add to it. Returns ``tensor``.

    ``types`` are any number of dicts from axes to R, I, V, P or S(i), ``SpmdType``s and ``PartitionSpec``s, and at most
    one bare type, which stands for every axis of the current mesh that is not mentioned; they must agree. An axis that
    is mentioned nowhere stays open. Lists and tuples are annotated element by element. All or nothing: after an error
    every type is what it was.

    ``even``  says of the shards that this call names whether they all have one length. Left out, shards of a tensor
    about which nothing was known are even, and those that came out of split sizes stay uneven.

    Types:   absent -> any; R, I, V, P -> itself; V -> P (the sum is meant); R -> I on a tensor without gradient.
    Errors:  SW130 for a local type that contradicts, SW131 for a sharding that does, SW132 for a claim that cannot be
             meant for this tensor, SW202 for a pending sum of truth values or a pending extreme of complex numbers,
             SW901, SW902 and SW904 for axes; a TypeError for what is no type or no tensor.
    Example:
        >>> x = assert_type(torch.ones(4, 8), {"dp": S(0), "tp": R})
        >>> print(typeof(x))
        f32[4@dp, 8] {tp: R}
        >>> print(typeof(assert_type(torch.ones(4, 8), R)))
        f32[4, 8] {dp: R, tp: R}
    """
    if session.erased or torch.compiler.is_compiling():
        return tensor
    annotate(tensor, types if partition_spec is None else (*types, partition_spec), even=even)
    return tensor


def assert_local_type(x: T, type: TypeClaim) -> T:
    """Deprecated: ``assert_type``.

    Example:
        >>> x = assert_type(torch.ones(4), {"tp": R})
    """
    if _is_off():
        return x
    warnings.warn("assert_local_type is now called assert_type", DeprecationWarning, stacklevel=2)
    return assert_type(x, type)


@boundary
def assert_type_like(x: object, source: object, overrides: PerMeshAxisSpmdTypesArg | None = None) -> None:
    """Give ``x`` the type of ``source`` with its partition spec, some axes replaced by ``overrides``.

    Errors: as ``assert_type``; SW131 if an override takes away an axis that the spec shards.
    Example:
        >>> x, y = assert_type(torch.ones(4, 8), {"tp": S(1)}), torch.ones(4, 8)
        >>> assert_type_like(y, x, {"dp": R})
        >>> print(typeof(y))
        f32[4, 8@tp] {dp: R}
    """
    if not _is_off():
        _assert_like(x, source, overrides, "assert_type_like", with_spec=True)


@boundary
def assert_local_type_like(x: object, source: object, overrides: PerMeshAxisSpmdTypesArg | None = None) -> None:
    """Give ``x`` the local type of ``source``, some axes replaced by ``overrides``. Errors: as ``assert_type``.

    Example:
        >>> x, y = assert_type(torch.ones(4), {"tp": R, "dp": V}), torch.ones(3)
        >>> assert_local_type_like(y, x, {"tp": P})
        >>> print(typeof(y))
        f32[3] {dp: V, tp: P}
    """
    if not _is_off():
        _assert_like(x, source, overrides, "assert_local_type_like", with_spec=False)


def _assert_like(
    x: object, source: object, overrides: PerMeshAxisSpmdTypesArg | None, op: str, *, with_spec: bool
) -> None:
    like = type_of(source)
    unknown = {axis: UNKNOWN for axis in like.axes if like.get(axis) is UNKNOWN}
    if tag_of(x) is None and (unknown or like.ground is Ground.UNKNOWN):
        set_type(x, TensorType.of(unknown, ground=like.ground) if unknown else UNKNOWN_TYPE)
    local = dict(like.local)
    if overrides is not None and not isinstance(overrides, Mapping):
        raise SpmdArgumentError(
            f"overrides are a dict from axes to types, got one of type {type(overrides).__name__}",
            code="SW132",
            help=('overrides={"tp": R}',),
        )
    for axis, placement in (overrides or {}).items():
        local[normalize_axis(axis)] = placement
    annotate(x, (local, like.spec) if with_spec else (local,), op)
    if with_spec and like.uneven:
        for leaf in leaves(x):
            set_type(leaf, type_of(leaf).with_uneven(like.uneven))


@boundary
def merge_types(*types: TypeClaim) -> SpmdType:
    """Several partial claims as one ``SpmdType``; arguments as in ``assert_type``, axes compared as written.

    Errors: SW131 for claims that contradict each other, SW132 (a TypeError) for a second bare type, SW904 for a bare
    type without a current mesh.

    Example:
        >>> merge_types({"dp": R}, PartitionSpec("tp", None))
        SpmdType(local_type={'dp': R}, partition_spec=PartitionSpec('tp', None))
    """
    return merge(types)


@boundary
def mutate_type(x: T, axis: DeviceMeshAxis | None = None, *, src: TypeOrTypes, dst: TypeOrTypes) -> T:
    """Overwrite local types of ``x`` after checking that they are ``src``. Returns ``x``.

    One type for ``axis``, or for every annotated axis if there is no ``axis``; or a dict on either side, which names
    the axes; two dicts name the same ones. S(i) counts as V and a spec entry that is no longer true goes. Where nothing
    is checked, a tensor without a type is left alone.
    Errors: SW130 if the current type is not ``src``, SW103 for an axis that ``x`` has no type on, SW132 for forms that
    do not fit together.

    Example:
        >>> x = assert_type(torch.ones(4), {"tp": V})
        >>> print(typeof(mutate_type(x, "tp", src=V, dst=P)))
        f32[4] {dp: R, tp: P}
    """
    if not _is_off():
        mutate(x, axis, src, dst)
    return x


@boundary
def reinterpret_no_grad(x: T, axis: DeviceMeshAxis, *, dst: PerMeshAxisLocalSpmdType) -> T:
    """Read R as I or I as R on ``axis``, in place, on a tensor that takes part in no gradient. Returns ``x``.

    Where nothing is checked, a tensor without a type is left alone.
    Errors: a ValueError if ``x`` requires grad or ``dst`` is neither R nor I; SW130 if ``x`` is V or P; SW103 if it has
    no type on ``axis``.

    Example:
        >>> x = assert_type(torch.ones(4), {"tp": R})
        >>> print(typeof(reinterpret_no_grad(x, "tp", dst=I)))
        f32[4] {dp: R, tp: I}
    """
    if not _is_off():
        reread(x, axis, dst)
    return x
