"""What the tests of all packages share: how much is run by day, a guard that unmarked tests start no process, and a
Python for those who do that has loaded torch already.
"""

from __future__ import annotations

import gc
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings

from shardwise.verifier.runs.warming import warm_up
from shardwise_devtools.warm_python import WarmPython

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


def _all_is_run() -> bool:
    """Whether this is `make nightly`, which leaves nothing out."""
    return settings.default.max_examples > settings.get_profile("shardwise").max_examples


@pytest.fixture(scope="session")
def nightly() -> bool:
    """Whether everything is run, or a selection that a test makes itself."""
    return _all_is_run()


@pytest.fixture(scope="session")
def _warm() -> Iterator[str]:
    with WarmPython() as executable:
        yield executable


@pytest.fixture
def warm_python(_warm: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """``sys.executable`` is a Python that has loaded torch already: 3 CPU seconds less for each that a test starts."""
    monkeypatch.setattr(sys, "executable", _warm)
    return _warm


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, default=1, metavar="N", help="of N variants of one test run one")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Of tests marked ``slow_but_one_in`` make most ``slow``; after ``-k`` and ``-m`` leave most of ``one_in`` out.

    By day what is marked ``nightly`` is left out, too. Words on the command line that name a test run it in any case.
    """
    for item in _but_one(items, lambda item: _size(item, "slow_but_one_in")):
        item.add_marker(pytest.mark.slow)
    yield
    if _all_is_run() or any("::" in word for word in config.args):
        return
    out = {item for item in items if item.get_closest_marker("nightly") is not None}
    out.update(_but_one(items, lambda item: _size(item, "one_in")))
    sample = config.getoption("--sample")
    out.update(_but_one([item for item in items if item not in out], lambda _: sample))
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def _size(item: pytest.Item, mark: str) -> int:
    found = item.get_closest_marker(mark)
    return 1 if found is None else found.args[0]


def _but_one(items: Iterable[pytest.Item], size: Callable[[pytest.Item], int]) -> Iterator[pytest.Item]:
    """Of every ``size`` variants of a test, in their order, all but one."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for variants in families.values():
        count = size(variants[0])
        for at in range(0, len(variants), count):
            block = variants[at : at + count]
            # Not the first of each: every second variant of two crossed tables may be all of one column.
            chosen = block[zlib.crc32(block[0].nodeid.encode()) % len(block)]
            yield from (item for item in block if item is not chosen)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Load what forks of this process would each load, once; and keep collections of garbage from what there is."""
    if any(item.get_closest_marker("processes") for item in session.items):
        warm_up()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests without the mark ``processes`` start none."""
    global _alone
    _alone = item.get_closest_marker("processes") is None
    try:
        return (yield)
    finally:
        _alone = False
