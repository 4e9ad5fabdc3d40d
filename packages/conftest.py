"""What the tests of all packages share: profiles of random cases, and a guard that unmarked tests start no process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings

# Machines are shared, so no case has a deadline; a failure says how it is played again.
settings.register_profile("shardwise", deadline=None, print_blob=True)
settings.register_profile("nightly", settings.get_profile("shardwise"), max_examples=2000)
settings.load_profile("shardwise")

STARTING = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
"""Audit events of a process that starts."""
_alone = False


def _refuse_processes(event: str, _: Any) -> None:
    if _alone and event in STARTING and not _importing():
        raise RuntimeError(
            "a test that starts processes is marked pytest.mark.processes, so that test-fast leaves it out"
        )


def _importing() -> bool:
    """Whether a module is being imported: torch's list of operators asks for the machine while it loads."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


sys.addaudithook(_refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests without the mark ``processes`` start none."""
    global _alone
    _alone = item.get_closest_marker("processes") is None
    try:
        return (yield)
    finally:
        _alone = False
