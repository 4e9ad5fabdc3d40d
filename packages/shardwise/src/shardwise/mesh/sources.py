"""Which ranks stand behind an object that is not an axis yet? Process groups, and whatever else a source knows.

This room does not import torch. A process group can only exist where ``torch.distributed`` is loaded already, so it
is looked up among the loaded modules; ``register_axis_source`` teaches other kinds, and is asked first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

AxisSource = Callable[[Any], tuple[Iterable[int], str | None] | None]
"""From an object to its ranks and its name, or None if it is of no kind that the source knows."""

_sources: list[AxisSource] = []


def register_axis_source(source: AxisSource) -> AxisSource:
    """Let ``source`` say which ranks an object stands for. The latest registered is asked first."""
    if source not in _sources:
        _sources.insert(0, source)
    return source


def ranks_behind(obj: object) -> tuple[list[int], str | None] | None:
    """The ranks of ``obj`` and its name; None if nobody knows such an object."""
    for source in (*_sources, _process_group):
        found = source(obj)
        if found is not None:
            ranks, name = found
            return list(ranks), name
    return None


def _process_group(obj: object) -> tuple[Iterable[int], str | None] | None:
    dist = sys.modules.get("torch.distributed")
    group_class = getattr(dist, "ProcessGroup", None)
    if dist is None or group_class is None or not isinstance(obj, group_class):
        return None
    return dist.get_process_group_ranks(obj), getattr(obj, "group_desc", None)
