"""How do the pieces of a tensor lie that is said to vary, and no more? As its parameter's initial values show.

``V`` on a weight does not say which dim is split. If putting the initial pieces together along a dim gives the weight
of the run on one rank, its gradients are split the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from shardwise.interop.running.recording import Key
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import TensorType


def loose_axes(type: TensorType) -> tuple[object, ...]:
    """The axes over which a type says no more than that it varies."""
    placed = {axis for entry in type.spec or () for axis in entry_axes(entry)}
    return tuple(axis for axis in type.axes if type.is_varying(axis) and axis not in placed)


class Layouts:
    """The layouts of parameters that have been found out, by name."""

    def __init__(self) -> None:
        self._known: dict[str, TensorType] = {}

    def known(self, key: Key, type: TensorType) -> TensorType:
        """``type``, or what has been found out about this parameter if it says less."""
        found = self._known.get(key.name) if key.kind in ("gradient", "left", "trained") else None
        same = found is not None and dict(found.local) == dict(type.local)
        return found if found is not None and same and loose_axes(type) else type

    def learn(self, key: Key, type: TensorType, value: torch.Tensor) -> None:
        """The parameter ``key`` with initial value ``value`` has been put together as ``type``."""
        if key.kind == "parameter" and type.spec is not None and all(_tells(value, dim) for dim in _cut(type)):
            self._known[key.name] = type

    def candidates(
        self, type: TensorType, pieces: Mapping[int, torch.Tensor], whole: torch.Tensor
    ) -> Iterator[TensorType]:
        """Types that put the pieces together to the shape of ``whole``, where one axis alone is loose."""
        axes = loose_axes(type)
        piece = pieces[min(pieces)]
        if len(axes) != 1 or piece.ndim != whole.ndim:
            return
        spec = type.spec or PartitionSpec(*(None for _ in piece.shape))
        for dim in range(whole.ndim):
            entries = list(spec)
            entries[dim] = make_entry([*entry_axes(spec[dim]), axes[0]])
            candidate = type.with_spec(PartitionSpec(*entries))
            if _shape(candidate, piece) == tuple(whole.shape):
                yield candidate


def _shape(type: TensorType, piece: torch.Tensor) -> tuple[int, ...]:
    shape = list(piece.shape)
    for dim, entry in enumerate(type.spec or ()):
        for axis in entry_axes(entry):
            shape[dim] *= axis.size()
    return tuple(shape)


def _cut(type: TensorType) -> list[int]:
    return [dim for dim, entry in enumerate(type.spec or ()) if entry is not None]


def _tells(value: torch.Tensor, dim: int) -> bool:
    """False if the pieces along ``dim`` could be exchanged unnoticed, as those of zeros can."""
    return not torch.equal(value, value.roll(1, dim))
