"""How do our types and DTensor's placements translate, and how is a DTensor moved by typed collectives?

A DTensor's Replicate says nothing about gradients; read by itself it is I, because DTensor keeps the gradients of
replicated tensors replicated. With a partial gradient it is R.
"""

from __future__ import annotations

from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.distributed.tensor import Shard as DTensorShard

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError, shown
from shardwise.interop.calls.boundary import boundary
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, Shard, V
from shardwise.types.tensor_sharding import TensorSharding, normalize_dim_sharding

from .redistribute import redistribute


class UnsupportedMoveError(SpmdTypeError, NotImplementedError):
    """A move of a DTensor that no typed collective makes."""


@boundary
def spmd_type_to_dtensor_placement(placement: PerMeshAxisSpmdType) -> Placement:
    """The DTensor placement for R, I, S(i) or P. Errors: SW905 for V, of which DTensor has no notion.

    Example:
        >>> spmd_type_to_dtensor_placement(S(0)), spmd_type_to_dtensor_placement(P)
        (Shard(dim=0), Partial(sum))
    """
    if isinstance(placement, Shard):
        return DTensorShard(placement.dim)
    if placement is R or placement is I:
        return Replicate()
    if placement is P:
        return Partial("sum")
    what = "V says nothing about how the pieces combine, so it has" if placement is V else f"{shown(placement)} has"
    raise SpmdValueError(f"{what} no DTensor placement", code="SW905", help=("name the sharded dim: S(i)",))


@boundary
def dtensor_placement_to_spmd_type(
    placement: Placement, grad_placement: Placement | None = None
) -> PerMeshAxisSpmdType:
    """S(i), P, and for Replicate R if the gradient is partial, else I. Errors: SW905 for other placements.

    Example:
        >>> from torch.distributed.tensor import Replicate, Shard
        >>> dtensor_placement_to_spmd_type(Shard(0)), dtensor_placement_to_spmd_type(Replicate())
        (S(0), I)
    """
    if type(placement) is DTensorShard:
        return Shard(placement.dim)
    if isinstance(placement, Partial) and placement.reduce_op == "sum":
        return P
    if isinstance(placement, Replicate):
        return R if isinstance(grad_placement, Partial) else I
    raise SpmdValueError(
        f"the DTensor placement {shown(placement)} has no type here: known are Shard(i), Replicate and Partial(sum)",
        code="SW905",
    )


@boundary
def spmd_redistribute(x: DTensor, src: TensorSharding, dst: TensorSharding) -> DTensor:
    """``x`` sharded as ``dst`` says; ``src`` must be how it is sharded now. No change returns ``x`` itself.

    Differentiable: the gradient takes the reversed moves.
    Errors: SW201 if ``x`` is not sharded as ``src`` says; SW902 for unknown mesh dims; NotImplementedError if a dim
    changes that several mesh dims shard; those of ``redistribute``.

    Example:
        >>> from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        >>> with no_typecheck():
        ...     x = distribute_tensor(torch.ones(8, 8), mesh["tp"], [Shard(0)])
        ...     y = spmd_redistribute(x, TensorSharding("tp", None), TensorSharding(None, "tp"))
        >>> y.placements
        (Shard(dim=1),)
    """
    if not isinstance(x, DTensor):
        raise SpmdArgumentError(
            f"spmd_redistribute takes a DTensor, got one of type {type(x).__name__}",
            code="SW905",
            help=("redistribute(x, axis, src=..., dst=...) for a local tensor",),
        )
    names = x.device_mesh.mesh_dim_names or ()
    now, wanted = _dim_of_each(src, names), _dim_of_each(dst, names)
    _check_source(x, now, names)
    changed = [name for name in names if now.get(name) != wanted.get(name)]
    if not changed:
        return x
    for before, after in zip(src, dst, strict=True):
        before, after = tuple(normalize_dim_sharding(before)), tuple(normalize_dim_sharding(after))
        if before != after and max(len(before), len(after)) > 1:
            raise UnsupportedMoveError(
                f"a tensor dim sharded by {before} cannot become one sharded by {after}: "
                "spmd_redistribute moves one mesh dim per tensor dim",
                code="SW202",
                help=("x.redistribute(placements=...), DTensor's own",),
            )
    local = x.to_local()
    while changed:
        name, target = _next_move(changed, now, wanted)
        group = x.device_mesh.get_group(name)
        local = redistribute(local, group, src=_type_at(now.get(name)), dst=_type_at(target))
        now[name] = target
        changed = [name for name in changed if now.get(name) != wanted.get(name)]
    placements = [spmd_type_to_dtensor_placement(_type_at(now.get(name))) for name in names]
    return DTensor.from_local(local, x.device_mesh, placements, run_check=False, shape=x.shape, stride=x.stride())


def _type_at(dim: int | None) -> PerMeshAxisSpmdType:
    return I if dim is None else Shard(dim)


def _dim_of_each(sharding: TensorSharding, names: tuple[str, ...]) -> dict[str, int | None]:
    """The tensor dim that each mesh dim shards."""
    dims: dict[str, int | None] = {}
    for dim, entry in enumerate(sharding):
        for name in normalize_dim_sharding(entry):
            if name not in names:
                raise SpmdValueError(
                    f"the mesh has no dim named {name!r}; its dims are {', '.join(map(repr, names))}", code="SW902"
                )
            if name in dims:
                raise SpmdValueError(f"{sharding!r} uses the mesh dim {name!r} twice", code="SW131")
            dims[name] = dim
    return dims


def _check_source(x: DTensor, now: dict[str, int | None], names: tuple[str, ...]) -> None:
    for name, placement in zip(names, x.placements, strict=True):
        expected = spmd_type_to_dtensor_placement(_type_at(now.get(name)))
        if placement != expected:
            raise SpmdTypeError(
                f"src says that the tensor is {expected!r} on {name!r}, and it is {placement!r}",
                code="SW201",
            )


def _next_move(changed: list[str], now: dict[str, int | None], wanted: dict[str, int | None]) -> tuple[str, int | None]:
    """The next mesh dim to move, and where to: gather first, then fill tensor dims that nobody shards any more."""
    for name in changed:
        if wanted.get(name) is None:
            return name, None
    taken = {dim for dim in now.values() if dim is not None}
    for name in changed:
        if wanted[name] not in taken:
            return name, wanted[name]
    return changed[0], None  # a ring of mesh dims that want each other's tensor dim: open it
