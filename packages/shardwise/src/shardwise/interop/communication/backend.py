"""The ``torch.distributed`` that the collectives call: the real one, or a stand-in given to ``set_dist``."""

from __future__ import annotations

from typing import Any

import torch.distributed

from shardwise.diagnostics.errors import SpmdArgumentError, shown

current: Any = torch.distributed
"""The module, or an object that looks like it, that moves the bytes. Read it as ``backend.current``."""


def _single_tensor_forms(module: Any) -> tuple[Any, Any]:
    """Its all-gather and reduce-scatter on one tensor: torch 2.13 has renamed them and warns about the old names."""
    if module is torch.distributed and hasattr(module, "all_gather_single"):
        return module.all_gather_single, module.reduce_scatter_single
    return module.all_gather_into_tensor, module.reduce_scatter_tensor


all_gather, reduce_scatter = _single_tensor_forms(current)
learnt: dict[int, Any] = {}
"""What was learnt of process groups by asking this backend, by their ids; forgotten when the backend changes."""


def set_dist(module: object) -> None:
    """Let the runtime collectives call ``module`` in place of ``torch.distributed``; None restores the latter.

    Holds for the whole process. With a stand-in every collective goes through it: functional collectives, which could
    not be redirected, are then not used, so ``async_op`` waits at once.

    Example:
        >>> import torch.distributed
        >>> set_dist(torch.distributed)
        >>> set_dist(None)
    """
    global current, all_gather, reduce_scatter
    stand_in = torch.distributed if module is None else module
    try:
        forms = _single_tensor_forms(stand_in)
    except AttributeError as error:
        raise SpmdArgumentError(
            "set_dist takes a module with the functions of torch.distributed, or None; "
            f"{shown(module)} of type {type(module).__name__} lacks one: {error}",
            code="SW905",
        ) from None
    current = stand_in
    all_gather, reduce_scatter = forms
    learnt.clear()


def is_replaced() -> bool:
    """True while a stand-in is in use."""
    return current is not torch.distributed
