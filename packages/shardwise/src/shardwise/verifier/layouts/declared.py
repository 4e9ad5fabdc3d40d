"""The layouts of parameters whose type says that they vary, and no more: as their initial values have shown.

``V`` on a weight does not say which dim is split. A layout under which the initial pieces are the weight of the run on
one rank (``oracle/observed_layout.py``) is that of its gradients too.
"""

from __future__ import annotations

import torch

from shardwise.interop.running.recording import Key
from shardwise.oracle.observed_layout import ObservedLayout
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import TensorType


def loose_axes(type: TensorType) -> tuple[object, ...]:
    """The axes over which a type says no more than that it varies."""
    placed = {axis for entry in type.spec or () for axis in entry_axes(entry)}
    return tuple(axis for axis in type.axes if type.is_varying(axis) and axis not in placed)


class KnownLayouts:
    """The layouts of parameters that have been found out, by name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[object, object], ObservedLayout]] = {}

    def of(self, key: Key, type: TensorType) -> ObservedLayout | None:
        """What has been found out about this parameter, if ``type`` says less."""
        if key.kind not in ("gradient", "left", "updated", "trained") or not loose_axes(type):
            return None
        local, layout = self._known.get(key.name, ({}, None))
        return layout if local == dict(type.local) else None

    def learn(self, key: Key, type: TensorType, layout: ObservedLayout, value: torch.Tensor) -> None:
        """The parameter ``key`` of type ``type`` with initial value ``value`` has been put together by ``layout``."""
        dims = layout.cut_dims
        if key.kind == "parameter" and dims and all(_tells(value, dim) for dim in dims):
            self._known[key.name] = (dict(type.local), layout)


def _tells(value: torch.Tensor, dim: int) -> bool:
    """False if the pieces along ``dim`` could be exchanged unnoticed, as those of zeros can."""
    return not torch.equal(value, value.roll(1, dim))
