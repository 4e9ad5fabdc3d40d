"""Where torch leaves traces on this machine, for those who do not want to type it."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from pathlib import Path

from tracewise.read.archive import InputError

LOGS = "dedicated_log_torch_trace_*.log"


def trace_folders() -> list[Path]:
    """The folders that torch writes traces to by its settings, that of draft exports included."""
    folders = [Path(os.environ[name]) for name in ("TORCH_TRACE", "TORCH_DTRACE") if os.environ.get(name)]
    folders.append(Path("torch_compile_debug/tlparse"))
    with contextlib.suppress(OSError, KeyError):
        folders.append(Path(tempfile.gettempdir()) / f"export_{getpass.getuser()}")
    return folders


def latest_folder() -> Path:
    """The folder of the newest trace. InputError with the folders that were looked into if there is none."""
    folders = trace_folders()
    logs = [log for folder in folders for log in folder.glob(LOGS)]
    if not logs:
        looked = ", ".join(map(str, folders))
        raise InputError(f"--latest: no trace in {looked}; run the program with TORCH_TRACE=DIR, or give its folder")
    return max(logs, key=lambda log: log.stat().st_mtime).parent
