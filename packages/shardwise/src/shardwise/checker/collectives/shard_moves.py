"""What does a collective do to a partition spec? Takes its axis off the dim it gathers, puts it on the dim it scatters.

Several axes may shard one dim; a collective moves the innermost of them, because only there do the pieces that it
exchanges lie side by side. Source: api section 4.13, semantics section 7.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.transitions import REDUCTIONS
from shardwise.types.placement import P, Shard, V, resolve_dim, to_local_type
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, partition_spec_get_shard
from shardwise.types.tensor_type import TensorType


def moved_spec(
    op: str, type: TensorType, ndim: int, axes: Sequence[Any], src: Any, dst: Any
) -> PartitionSpec | Diagnosis | None:
    """The spec after moving ``axes`` (outermost first, flattened into the call's one axis) from ``src`` to ``dst``."""
    entries = [list(entry_axes(entry)) for entry in type.spec] if type.spec is not None else [[] for _ in range(ndim)]
    names = ", ".join(map(repr, axes))
    if op != "reinterpret" and V in (src, dst) and not (op == "convert" and to_local_type(src) is to_local_type(dst)):
        side = "src" if src is V else "dst"
        return Diagnosis(
            "SW412",
            f"{op} with {side}=V over {names} adds or removes a dim, which a partition spec cannot follow",
            help=(f"{op}(..., {side}=S(i)) names the dim that is cut",),
        )
    dim = next((at for at, entry in enumerate(entries) if axes[0] in entry), None)
    if isinstance(src, Shard):
        if dim is None:
            return Diagnosis("SW408", f"{op} reads a shard over {names}, but nothing says which dim is sharded")
        inner = entries[dim][-len(axes) :]
        if inner != list(axes):
            innermost = entries[dim][-1]
            return Diagnosis(
                "SW410",
                f"{op} over {names}, but the innermost axis that shards dim {dim} is {innermost!r}",
                (f"dim {dim} is sharded over {', '.join(map(repr, entries[dim]))}, outermost first",),
                (f"{op} over {innermost!r} first, then over {names}",),
            )
    return landed(type.spec, ndim, axes, dst)


def landed(spec: PartitionSpec | None, ndim: int, axes: Sequence[Any], dst: Any) -> PartitionSpec | None:
    """``spec`` with ``axes`` taken off, and appended as the innermost ones where ``dst`` cuts."""
    entries = [[] if entry is None else list(entry_axes(entry)) for entry in spec or (None,) * ndim]
    for entry in entries:
        entry[:] = [axis for axis in entry if axis not in axes]
    if isinstance(dst, Shard):
        entries[resolve_dim(dst, ndim)].extend(axes)
    made = PartitionSpec(*(make_entry(entry) for entry in entries))
    return made if any(entry is not None for entry in made) else None


def restacked(spec: PartitionSpec | None, op: str, src: Any, dst: Any) -> PartitionSpec | None:
    """The spec of the other axes when ``op`` stacks on a new dim 0, or takes each rank's entry of dim 0."""
    if spec is None or op in ("reinterpret", "all_to_all") or (src is V and dst is V):
        return spec
    if src is V and op not in REDUCTIONS and not isinstance(dst, Shard):
        return PartitionSpec(None, *spec)
    if dst is V and not isinstance(src, Shard):
        rest = PartitionSpec(*spec[1:])
        return rest if any(entry is not None for entry in rest) else None
    return spec


def mixed(op: str, axes: Sequence[Any], local: Collection[Any]) -> Diagnosis:
    """A collective over an axis that is flattened from some of ``local_axes`` and some global ones."""
    kept, tracked = ([repr(axis) for axis in axes if (axis in local) is wanted] for wanted in (True, False))
    return Diagnosis(
        "SW413",
        f"{op} runs over {', '.join(kept)} with local types and {', '.join(tracked)} with global types at once",
        ("local_axes of the current mesh says which axes keep local semantics",),
        (f"one {op} per axis, or with local(): around this one",),
    )


def unequal(op: str, axes: Sequence[Any], src: Any, dst: Any) -> Diagnosis:
    """A move of pieces that may differ in length, without being told how long each is."""
    where = axis_argument(axes[0]) if len(axes) == 1 else f"({', '.join(map(axis_argument, axes))})"
    sizes = "split_sizes=[...]"
    if isinstance(dst, Shard):
        sizes = "input_split_sizes=[...], output_split_sizes=[...]" if src.dim == dst.dim == 0 else ""
    return Diagnosis(
        "SW417",
        f"{op} takes every rank's piece over {', '.join(map(repr, axes))} to be of one length, but they may differ",
        ("where they do, it stops, waits for ever or puts the wrong elements together",),
        (
            *([f"{op}(..., src={src!r}, dst={dst!r}, {sizes}) says how long each is"] if sizes else []),
            f"assert_type(..., {{{where}: {src!r}}}, even=True) if every rank has as many elements",
        ),
    )


def reads_pieces_as_sum(type: TensorType, axes: Sequence[Any], src: Any) -> bool:
    """True if a reduction would add up the pieces of a sharded tensor, which is not the value it denotes.

    What varies and is not said to be sharded are numbers that each rank has for itself, which may be summed.
    """
    return src in (P, V) and any(partition_spec_get_shard(type.spec, axis) is not None for axis in axes)
