"""Which functions switch checking off while they are on the stack? Code objects, asked for only if there are any.

Nothing is wrapped, so this works for functions that others have imported already and for methods that are replaced.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType

silent_code: set[CodeType] = set()
"""Code objects during whose execution nothing is checked."""


def is_silenced() -> bool:
    """True if the calling thread executes one of these functions, however far up its stack."""
    if not silent_code:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in silent_code:
            return True
        frame = frame.f_back
    return False
