"""Whose mistake is an exception: the program's, or ours?"""

from __future__ import annotations

import os

from shardwise.diagnostics.error_text import steps
from shardwise.diagnostics.errors import SpmdTypeError

from .no_run import StartsProcesses

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
CALLS_FOR_THE_PROGRAM = os.path.join("host", "devices.py")


def is_ours(error: BaseException) -> bool:
    """Was this raised by a mistake in shardwise, and not by the program or by torch?

    Torch's own functions have no frame, so the mode that calls them for the program does not count; nor does what
    refuses on purpose, nor a TypeError, which is as likely a call of the program with the wrong arguments, nor what
    runs out wherever it happens to be used last.
    """
    frames = [step.tb_frame.f_code.co_filename for step in steps(error.__traceback__)]
    if not frames or isinstance(error, TypeError | SpmdTypeError | StartsProcesses | RecursionError | MemoryError):
        return False
    return frames[-1].startswith(PACKAGE) and not frames[-1].endswith(CALLS_FOR_THE_PROGRAM)
