"""Whose mistake is an exception: the program's, or ours?"""

from __future__ import annotations

import collections
import itertools
import linecache
import os
import re
from types import TracebackType

from shardwise.diagnostics.error_text import steps, traceback_of
from shardwise.diagnostics.errors import SpmdTypeError

from .no_run import StartsProcesses

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_ours(error: BaseException) -> bool:
    """Was this raised by a mistake in shardwise, and not by the program or by torch?

    Torch's own functions have no frame, so a frame that calls ``func`` for the program does not count; nor does what
    refuses on purpose, nor a TypeError, which is as likely a call of the program with the wrong arguments, nor what
    runs out wherever it happens to be used last.
    """
    if issubclass(type(error), TypeError | SpmdTypeError | StartsProcesses | RecursionError | MemoryError):
        return False
    last = collections.deque(steps(traceback_of(error)), maxlen=1)
    return bool(last) and last[0].tb_frame.f_code.co_filename.startswith(PACKAGE) and not _calls_for_program(last[0])


def _calls_for_program(step: TracebackType) -> bool:
    """Is the frame at a call of ``func``, as every handler names the function of torch that the program has called?"""
    position = next(itertools.islice(step.tb_frame.f_code.co_positions(), step.tb_lasti // 2, None), None)
    if position is None or position[0] is None or position[2] is None:
        return False
    text = linecache.getline(step.tb_frame.f_code.co_filename, position[0]).encode()[position[2] :].decode()
    return re.match(r"(?:func|super\(\)\.__torch_function__)\(", text) is not None
