"""Zeros that a program has declared: whatever it says they are, zero is a term of everything until it is written.

A state that gathers what ranks did not send (error feedback, momenta of their own) starts as zeros, said to vary or to
be equal, and meets its first gradient, a pending sum, as zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..torch_compat import no_torch_function, writes_of
from .own_references import by_tensor

_zeros: Any = by_tensor()
"""By tensor, the count of its writes when it was declared."""


def note_zeros(x: object) -> None:
    """``x`` has been made as zeros on every rank, and not been written."""
    if isinstance(x, torch.Tensor):
        with no_torch_function():
            _zeros[x] = writes_of(x)


def forget_zeros(received: Iterable[torch.Tensor]) -> None:
    """These were written by a collective, which autograd need not have counted."""
    if _zeros:
        with no_torch_function():
            for x in received:
                _zeros.pop(x, None)


def is_zeros(x: object) -> bool:
    """True if ``x`` was declared as zeros and still is."""
    if not _zeros or not isinstance(x, torch.Tensor):
        return False
    with no_torch_function():
        count = _zeros.get(x)
        return count is not None and count == writes_of(x)
