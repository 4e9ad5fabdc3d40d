"""The type of a tensor after a transition: its placement along the axis, and the dims that axes shard. Pure.

A transition takes its axis off the dim that it gathers, and puts it on the dim that it cuts. Several axes may shard one
dim; only the innermost of them moves, because only there do the pieces that are exchanged lie side by side.
Source: docs/semantics.md section 7, Law 7.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh
from shardwise.mesh.normalize import axis_argument
from shardwise.mesh.regions import axes_inside, reinterpret
from shardwise.types.placement import (
    UNKNOWN,
    I,
    P,
    PerMeshAxisSpmdType,
    Placement,
    R,
    Shard,
    V,
    resolve_dim,
    to_local_type,
)
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, partition_spec_get_shard, spec_of
from shardwise.types.tensor_type import Ground, TensorType

from .transitions import REDUCTIONS, find_transition


@dataclass(frozen=True, slots=True)
class TransitionCall:
    """One transition of one tensor.

    ``op``      whose row it is: what ``redistribute`` and raw collectives come to.
    ``axis``    the call's, ``axes`` those of the tensor's type that make it up.
    ``ndim``    of the tensor before.
    ``called``  what the program calls.
    """

    op: str
    axis: MeshAxis
    axes: tuple[MeshAxis, ...]
    src: PerMeshAxisSpmdType
    dst: PerMeshAxisSpmdType
    ndim: int
    called: str

    @property
    def ordered_axes(self) -> list[MeshAxis]:
        """The axes, outermost first."""
        return sorted(self.axes, key=lambda axis: axis.sort_key)


@dataclass(frozen=True, slots=True)
class TypeAfter:
    """The type that the result has, and why the step is refused; the type is then what can be said all the same."""

    type: TensorType
    refusal: Diagnosis | None = None


def parts_of(axis: MeshAxis, type: TensorType) -> tuple[MeshAxis, ...]:
    """The axes of ``type`` that make up ``axis``: itself, or those that flatten to it; none if it says nothing."""
    return (axis,) if axis in type else axes_inside(axis, type.axes) or ()


def resolved(axis: MeshAxis, type: TensorType, mesh: CurrentMesh | None) -> tuple[TensorType, tuple[MeshAxis, ...]]:
    """``type``, said on ``mesh`` where that is what it takes, and its parts of ``axis``."""
    parts = parts_of(axis, type)
    if parts or mesh is None or not type.axes or all(one in mesh.axes for one in type.axes):
        return type, parts
    try:
        type = reinterpret(type, mesh.axes)
    except SpmdTypeError:
        return type, ()
    return type, parts_of(axis, type)


def type_after(
    step: TransitionCall,
    before: TensorType,
    local_axes: Collection[MeshAxis] = (),
    *,
    sized: bool = False,
    sure: bool = True,
) -> TypeAfter:
    """The type after the step where partition specs are followed, along all axes but ``local_axes``.

    ``sized``  the call says how long each piece is.
    ``sure``   nothing has been reported about the operand yet.
    """
    local = [axis for axis in step.axes if axis in local_axes]
    refusal = None
    if len(local) < len(step.axes):
        sure = sure and not any(axis in before and before.get(axis).is_unknown for axis in step.axes)
        refusal = _refusal(step, before, local, sized) if sure else None
    place: Placement = to_local_type(step.dst)
    if step.dst is V and (refusal is not None or not sure):
        place = UNKNOWN
    spec = spec_after(step, before.spec, cuts=not local)
    placements = {**{axis: before.get(axis) for axis in before.axes}, **dict.fromkeys(step.axes, place)}
    return TypeAfter(TensorType.of(placements, spec, scale=before.scale_under(placements)), refusal)


def spec_after(step: TransitionCall, spec: PartitionSpec | None, *, cuts: bool = True) -> PartitionSpec | None:
    """The partition spec after the step; ``cuts``: it is followed which dim the step cuts."""
    after = landed(spec, step.ndim, step.axes, step.dst if cuts else None)
    row = find_transition(step.op, step.src, step.dst)
    change = 0 if row is None else row.ndim_change
    if after is None or change == 0:
        return after
    return PartitionSpec(None, *after) if change > 0 else spec_of(after[1:])


def landed(
    spec: PartitionSpec | None, ndim: int, axes: Collection[MeshAxis], dst: PerMeshAxisSpmdType | None
) -> PartitionSpec | None:
    """``spec`` with ``axes`` taken off, and appended as the innermost ones where ``dst`` cuts."""
    entries = [[axis for axis in entry_axes(entry) if axis not in axes] for entry in spec or (None,) * ndim]
    if isinstance(dst, Shard):
        entries[resolve_dim(dst, ndim)].extend(axes)
    return spec_of(map(make_entry, entries))


def _refusal(step: TransitionCall, before: TensorType, local: Collection[MeshAxis], sized: bool) -> Diagnosis | None:
    """Why the step cannot be expressed; None if it can."""
    if local:
        return _mixed(step, local)
    if isinstance(step.src, Shard) and before.ground.is_constant and not _is_cut(before, step.axes[:1]):
        # Every piece of a tensor with one value is like every other.
        return _equal_pieces(step) if before.ground is Ground.CONSTANT else None
    if step.op in REDUCTIONS and not isinstance(step.src, Shard) and _is_cut(before, step.axes):
        return _pieces_as_sum(step)
    found = _unfollowed(step, before)
    if found is None and isinstance(step.src, Shard) and not sized and not before.uneven.isdisjoint(step.axes):
        row = find_transition(step.op, step.src, step.dst)
        return None if row is not None and row.is_noop else unequal(step)
    return found


def _is_cut(type: TensorType, axes: Iterable[MeshAxis]) -> bool:
    return any(partition_spec_get_shard(type.spec, axis) is not None for axis in axes)


def _unfollowed(step: TransitionCall, before: TensorType) -> Diagnosis | None:
    """What a partition spec cannot follow: entries of no dim, pieces of an unknown dim, axes that are not innermost."""
    op, axes = step.called, step.ordered_axes
    names = ", ".join(map(repr, axes))
    src = P if step.op in REDUCTIONS else step.src  # reductions read V as P
    renames = step.op == "reinterpret" or (step.op == "convert" and to_local_type(src) is to_local_type(step.dst))
    if V in (src, step.dst) and not renames:
        side = "src" if src is V else "dst"
        return Diagnosis(
            "SW412",
            f"{op} with {side}=V over {names} adds or removes a dim, which a partition spec cannot follow",
            help=(f"{op}(..., {side}=S(i)) names the dim that is cut",),
        )
    if not isinstance(src, Shard):
        return None
    entries = [entry_axes(entry) for entry in before.spec or ()]
    dim = next((at for at, entry in enumerate(entries) if axes[0] in entry), None)
    if dim is None:
        return Diagnosis("SW408", f"{op} reads a shard over {names}, but nothing says which dim is sharded")
    if list(entries[dim][-len(axes) :]) != axes:
        innermost = entries[dim][-1]
        return Diagnosis(
            "SW410",
            f"{op} over {names}, but the innermost axis that shards dim {dim} is {innermost!r}",
            (f"dim {dim} is sharded over {', '.join(map(repr, entries[dim]))}, outermost first",),
            (f"{op} over {innermost!r} first, then over {names}",),
        )
    return None


def _mixed(step: TransitionCall, local: Collection[MeshAxis]) -> Diagnosis:
    """Over an axis that is flattened from local and global ones."""
    kept, tracked = ([repr(axis) for axis in step.axes if (axis in local) is wanted] for wanted in (True, False))
    return Diagnosis(
        "SW413",
        f"{step.called} runs over {', '.join(kept)} with local types and {', '.join(tracked)} with global types at "
        "once",
        ("local_axes of the current mesh says which axes keep local semantics",),
        (f"one {step.called} per axis, or with local(): around this one",),
    )


def _equal_pieces(step: TransitionCall) -> Diagnosis:
    """A constant is no piece of anything."""
    axis, whole = axis_argument(step.axis), step.dst in (R, I)
    way = f"leave out this {step.called}" if whole else f"convert(..., {axis}, src=R, dst={step.src!r}) for the piece"
    return Diagnosis(
        "SW406",
        f"{step.called} would put together equal pieces: a constant is made alike on every rank of {step.axis!r}",
        ("counted from 0 on every rank, positions of a piece are positions of the first piece",),
        (f"make all of it on every rank, and {way}",),
    )


def _pieces_as_sum(step: TransitionCall) -> Diagnosis:
    """What varies and is not said to be sharded are numbers that each rank has for itself, which may be summed."""
    return Diagnosis(
        "SW201",
        f"{step.called} would add up the pieces of a tensor that is sharded over {step.axis!r}",
        ("the value meant by shards is their concatenation, not their sum",),
        (f"reinterpret(..., {axis_argument(step.axis)}, src=V, dst=P) first, if the pieces are addends",),
    )


def unequal(step: TransitionCall) -> Diagnosis:
    """Pieces that may differ in length are moved, and the call is not told how long each is."""
    src, dst = step.src, step.dst
    names, named = ", ".join(map(repr, step.axes)), ", ".join(map(axis_argument, step.axes))
    where = named if len(step.axes) == 1 else f"({named})"
    sizes = "split_sizes=[...]"
    if isinstance(src, Shard) and isinstance(dst, Shard):
        sizes = "input_split_sizes=[...], output_split_sizes=[...]" if src.dim == dst.dim == 0 else ""
    return Diagnosis(
        "SW417",
        f"{step.called} takes every rank's piece over {names} to be of one length, but they may differ",
        ("where they do, it stops, waits for ever or puts the wrong elements together",),
        (
            *([f"{step.op}(..., {where}, src={src!r}, dst={dst!r}, {sizes}) says how long each is"] if sizes else []),
            f"assert_type(..., {{{where}: {src!r}}}, even=True) if every rank has as many elements",
        ),
    )
