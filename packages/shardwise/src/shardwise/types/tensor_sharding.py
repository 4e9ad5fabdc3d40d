"""Which mesh dims, by name, shard which tensor dim of a DTensor? ``TensorSharding``: one entry per tensor dim.

It behaves like a tuple but is none, so that a pytree treats it as one leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import SupportsIndex, overload

from shardwise.diagnostics.errors import SpmdArgumentError, shown

from .aliases import DimSharding


class TensorSharding(Sequence[DimSharding]):
    """``TensorSharding("dp", None, ("cp", "tp"))``: None, a mesh dim name, or several, outermost first.

    Example:
        >>> sharding = TensorSharding("dp", None, ("cp", "tp"))
        >>> sharding[2], len(sharding), sharding == ("dp", None, ("cp", "tp"))
        (('cp', 'tp'), 3, True)
    """

    __slots__ = ("_entries",)

    def __init__(self, *dim_shardings: DimSharding) -> None:
        self._entries = dim_shardings

    @overload
    def __getitem__(self, index: SupportsIndex) -> DimSharding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[DimSharding, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> DimSharding | tuple[DimSharding, ...]:
        return self._entries[index]

    def __iter__(self) -> Iterator[DimSharding]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __add__(self, other: object) -> TensorSharding:
        return TensorSharding(*self._entries, *_entries_of(other))

    def __radd__(self, other: object) -> TensorSharding:
        return TensorSharding(*_entries_of(other), *self._entries)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorSharding):
            return self._entries == other._entries
        return self._entries == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"TensorSharding({', '.join(map(repr, self._entries))})"

    def __reduce__(self) -> tuple[object, ...]:
        return (TensorSharding, self._entries)


def _entries_of(other: object) -> tuple[DimSharding, ...]:
    if not isinstance(other, (tuple, TensorSharding)):
        raise NotImplementedError(f"a TensorSharding is added to a tuple or another one, not to {type(other).__name__}")
    return tuple(other)


def normalize_dim_sharding(entry: DimSharding) -> Sequence[str]:
    """An entry as a sequence of names: None is ``()``, a name is ``(name,)``, a sequence is itself.

    Example:
        >>> normalize_dim_sharding("tp"), normalize_dim_sharding(None)
        (('tp',), ())
    """
    if entry is None:
        return ()
    if isinstance(entry, str):
        return (entry,)
    if not isinstance(entry, Sequence):
        raise SpmdArgumentError(
            f"a dim is sharded by None, a mesh dim name or a sequence of names, got {shown(entry)} of type "
            f"{type(entry).__name__}"
        )
    return entry
