"""What must not die in one of PyTorch's own threads.

    with mode: dist.barrier(async_op=True)      gloo's thread lets go of the barrier when it is done, and of the
                                                modes under which it was called

If nobody else holds the mode by then, all behind it dies in that thread: a wrapped model and its process group too,
whose end waits for this very thread, while Python waits for both.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator

from torch.overrides import TorchFunctionMode

HELD = 64
"""So many are held: collectives that were called under older ones are over."""

_held: deque[TorchFunctionMode] = deque(maxlen=HELD)


@contextlib.contextmanager
def outliving_collectives(mode: TorchFunctionMode) -> Iterator[None]:
    """Enter ``mode``, and keep it beyond the block until the collectives that are called inside are over."""
    try:
        with mode:
            yield
    finally:
        _held.append(mode)
