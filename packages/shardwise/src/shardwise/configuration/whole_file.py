"""How a file is written so that it is never half of what was meant, nor lost: on a full disk it is as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

NAME = 100
"""Characters of a file's name that the file beside it has, whose own name may not be too long."""


def write_whole(path: Path, data: bytes) -> None:
    """The file has ``data`` afterwards, or is as it was. Errors: OSError."""
    target = path.resolve()  # of a link, what it leads to
    if target.exists() and not target.is_file():
        path.write_bytes(data)  # a device, or a pipe, has no content to lose
        return
    part = target.with_name(f".{target.name[:NAME]}.{os.getpid()}")
    try:
        with part.open("xb") as file:
            file.write(data)
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
