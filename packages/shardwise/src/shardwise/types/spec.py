"""Which mesh axes shard which tensor dim, in which order? The partition spec: one entry per tensor dim.

An entry is None (not sharded), an axis, or a tuple of axes, outermost first: in ``PartitionSpec(("dp", "tp"), None)``
dim 0 is first cut over dp and every piece then over tp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from shardwise._pictured import Pictured

from .aliases import Axis, DeviceMeshAxis, PartitionSpecEntry
from .axis_names import axis_named
from .placement import Shard


class PartitionSpec(Pictured, tuple[Any, ...]):
    """A tuple with one entry per tensor dim; entries are kept as written and compared as a plain tuple.

    Example:
        >>> spec = PartitionSpec(("dp", "tp"), None)
        >>> print(typeof(assert_type(torch.ones(4, 8), {"dp": V, "tp": V}, spec)))
        f32[4@(dp,tp), 8]
        >>> sorted(spec.axes_with_partition_spec(), key=str)
        [dp, tp]
    """

    __slots__ = ()

    def __new__(cls, *entries: PartitionSpecEntry | Sequence[DeviceMeshAxis]) -> PartitionSpec:
        return super().__new__(cls, entries)

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(_format_entry(entry) for entry in self)})"

    def axes_with_partition_spec(self) -> set[Axis]:
        """The mesh axes that shard some dim, names resolved under the current mesh, axes of one rank left out.

        Errors: SW904 for a name without a current mesh, SW902 for an unknown name. A process group is no axis yet:
        ``normalize_partition_spec`` makes one of it.
        """
        named = (axis for entry in self for axis in entry_axes(entry))
        axes = (axis_named(axis) if isinstance(axis, str) else axis for axis in named)
        return {axis for axis in axes if axis.size() > 1}

    def without(self, axes: Collection[DeviceMeshAxis]) -> PartitionSpec | None:
        """This (normalised) spec with some axes taken out; None when nothing is sharded any more."""
        if not axes:
            return self
        return spec_of(make_entry([axis for axis in entry_axes(entry) if axis not in axes]) for entry in self)


def spec_of(entries: Iterable[PartitionSpecEntry]) -> PartitionSpec | None:
    """The (normalised) spec with these entries; None if nothing is sharded."""
    made = PartitionSpec(*entries)
    return made if any(entry is not None for entry in made) else None


def _format_entry(entry: PartitionSpecEntry) -> str:
    if isinstance(entry, tuple):
        return "(" + ", ".join(map(repr, entry)) + ("," if len(entry) == 1 else "") + ")"
    return repr(entry)


def entry_axes(entry: object) -> tuple[Any, ...]:
    """An entry as a tuple of axes, outermost first."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)


def make_entry(axes: Collection[object]) -> Any:
    """The normal form of an entry: None, a bare axis, or a tuple of two and more axes."""
    axes = tuple(axes)
    return None if not axes else axes[0] if len(axes) == 1 else axes


def partition_spec_get_shard(spec: PartitionSpec | None, axis: object) -> Shard | None:
    """The S(i) that ``spec`` says for ``axis`` (already normalised), or None."""
    if spec is not None:
        for dim, entry in enumerate(spec):
            if axis in entry_axes(entry):
                return Shard(dim)
    return None
