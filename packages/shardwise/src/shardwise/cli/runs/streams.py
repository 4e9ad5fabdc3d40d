"""The process's standard streams where they are missing or cannot be written: a closed one, a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from typing import TypeGuard

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def open_closed_streams() -> None:
    """Put nothing in the place of standard streams that whoever started the process has closed.

    A file that is opened later would get the number of a closed one, and what is meant for a stream would go into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free, which is this one
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def is_no_room(error: Exception) -> TypeGuard[OSError]:
    """Is it about the place where an open file is written, as a disk that is full? Then nothing more is printed."""
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _NO_ROOM:
        return False
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def is_no_temporary_folder(error: Exception) -> TypeGuard[OSError]:
    """Is it that temporary files have no place: none of the folders for them can be written to, or theirs is full?"""
    if not isinstance(error, OSError):
        return False
    if error.filename is None:
        return isinstance(error, FileNotFoundError) and "temporary directory" in str(error.strerror)
    try:
        folder = os.path.realpath(tempfile.gettempdir()) + os.sep
    except OSError:
        return True
    return error.errno in _NO_ROOM and os.path.realpath(str(error.filename)).startswith(folder)
