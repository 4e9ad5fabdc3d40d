"""Who wants to know of a reduction that a fake world leaves out? At most one observer, set while ranks are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Observer = Callable[[Any, Any], None]
_observer: Observer | None = None


def reduction_left_out(buffer: Any, group: Any) -> None:
    """``buffer`` would be summed over ``group`` here, by a wrapper's own reducer."""
    if _observer is not None:
        _observer(buffer, group)


@contextlib.contextmanager
def set_observer(observer: Observer) -> Iterator[None]:
    """Tell ``observer`` inside the block."""
    global _observer
    before, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = before
