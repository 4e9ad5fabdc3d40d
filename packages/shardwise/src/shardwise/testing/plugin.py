"""The pytest plugin: the mark ``spmd``, fixtures for meshes and worlds, and ``--spmd-report``.

pytest loads this module in every project in which shardwise is installed, so nothing here loads torch before a test
has the mark or asks for a fixture.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from shardwise.diagnostics.result import RunResult

    from .options import TestOptions
    from .world_fixtures import WorldMaker

MARK = (
    "spmd(mesh, global_types=False, strict=False, ranks=0, partials='infer', expect=()): check the test on this mesh, "
    "e.g. mesh='dp=2,tp=2'; findings fail it"
)
ATTRIBUTE = "shardwise"
"""Where a test's report carries what was found, also from a worker of pytest-xdist to the process that prints."""

_options: pytest.StashKey[TestOptions] = pytest.StashKey()
_mesh: pytest.StashKey[DeviceMesh] = pytest.StashKey()
_result: pytest.StashKey[RunResult] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--spmd-report``."""
    parser.getgroup("shardwise").addoption(
        "--spmd-report",
        metavar="FILE",
        help="Write what shardwise found in tests with the mark spmd as JSON, and print a summary.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, and gather reports in the process that prints."""
    config.addinivalue_line("markers", MARK)
    file = config.getoption("--spmd-report")
    if file is not None and not hasattr(config, "workerinput"):
        from .session_report import SessionReport

        config.pluginmanager.register(SessionReport(file), "shardwise-report")


def _refuse(item: pytest.Item, what: str) -> None:
    pytest.fail(f"{item.nodeid}: {what}", pytrace=False)


def options_of_item(item: pytest.Item) -> TestOptions | None:
    """What its marks say, those of the test before those of its class and module, and what the project says where they
    say nothing; None without a mark."""
    marks = list(item.iter_markers("spmd"))
    if not marks:
        return None
    known = item.stash.get(_options, None)
    if known is not None:
        return known
    from shardwise.diagnostics.errors import SpmdTypeError

    from .options import options_in, options_of

    said: dict[str, Any] = {}
    for mark in reversed(marks):
        if len(mark.args) > 1:
            _refuse(item, f"the mark spmd takes one argument without a name, the mesh, got {mark.args!r}")
        said |= {**({"mesh": mark.args[0]} if mark.args else {}), **mark.kwargs}
    allowed = {*options_of.__annotations__} - {"return"}
    strange = sorted(said.keys() - allowed)
    if strange:
        import difflib

        near = difflib.get_close_matches(strange[0], allowed, n=1)
        meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(allowed))}"
        _refuse(item, f"the mark spmd has no option {strange[0]}={said[strange[0]]!r}: {meant}")
    wrong = ""
    try:
        options = options_in(item.path.parent, said)
        if options is None:
            told = "@pytest.mark.spmd(mesh='dp=2,tp=2'), or mesh under [tool.shardwise] in pyproject.toml"
            _refuse(item, f"the mark spmd needs a mesh: {told}")
            raise AssertionError("_refuse fails the test")
        item.stash[_options] = options
    except SpmdTypeError as error:
        wrong = error.message
    if wrong:
        _refuse(item, f"the mark spmd: {wrong}")
    return item.stash[_options]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """A mark that cannot be read is an error of the set-up."""
    came = yield
    options_of_item(item)
    return came


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Check the body of a test with the mark, and fail it for what was found."""
    options = options_of_item(item)
    if options is None or not isinstance(item, pytest.Function):
        return (yield)
    from shardwise.worlds.failures import CollectiveMismatch, Deadlock, RankTimeout

    from .block import across_ranks, checked, collector_of, failure_text, noted, one_rank

    if options.is_alone and options.ranks is not None:
        collector = collector_of(options, item.nodeid, options.ranks[0])
        place = contextlib.nullcontext() if _mesh in item.stash else one_rank(options, options.ranks[0])
        came = None
        try:
            with place, noted(options, collector.result), checked(options, collector):
                came = yield
        finally:
            item.stash[_result] = options.reported(collector.result())
    else:
        body = item.obj
        item.obj = across_ranks(options, item.nodeid, body, lambda result: item.stash.__setitem__(_result, result))
        wrong = ""
        came = None
        try:
            came = yield
        except (Deadlock, CollectiveMismatch, RankTimeout) as error:
            wrong = str(error)
        finally:
            item.obj = body
        if wrong:
            pytest.fail(wrong, pytrace=False)
    if _result not in item.stash:
        return came
    writer = item.config.get_terminal_writer()
    width = max(60, min(writer.fullwidth, shutil.get_terminal_size().columns))
    text = failure_text(item.stash[_result], options.expect, color=writer.hasmarkup, width=width)
    if text is not None:
        pytest.fail(text, pytrace=False)
    return came


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a checked test carries what was found."""
    report = yield
    if call.when == "call" and _result in item.stash:
        from shardwise.diagnostics.formats import to_dict

        setattr(report, ATTRIBUTE, to_dict(item.stash[_result]))
    return report


@pytest.fixture
def spmd_mesh(request: pytest.FixtureRequest) -> Iterator[DeviceMesh]:
    """The device mesh of the mark ``spmd``: each rank's own. From here to the end of the test its axes are current."""
    item = request.node
    options = options_of_item(item)
    if options is None:
        _refuse(item, "spmd_mesh is for tests with a mark: @pytest.mark.spmd(mesh='dp=2,tp=2')")
        raise AssertionError("_refuse fails the test")
    if not options.is_alone or options.ranks is None:
        yield _EachRanksOwn()  # type: ignore[misc]  # replaced for each rank
        return
    from .block import one_rank

    with one_rank(options, options.ranks[0]) as mesh:
        item.stash[_mesh] = mesh
        yield mesh


class _EachRanksOwn:
    """What stands for the mesh until a rank runs: only the test itself can have it."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.fail(
            "spmd_mesh is each rank's own where several ranks are run: use it in the test, not in a fixture",
            pytrace=False,
        )


def _worlds(request: pytest.FixtureRequest, kind: str) -> WorldMaker:
    if options_of_item(request.node) is not None:
        _refuse(
            request.node,
            f"{request.fixturename} starts ranks of its own, and the mark spmd makes the test a rank already: "
            "leave the mark out, or the fixture and write ranks='all'",
        )
    from .world_fixtures import WorldMaker

    return WorldMaker(kind)


@pytest.fixture
def spmd_fake_world(request: pytest.FixtureRequest) -> WorldMaker:
    """``spmd_fake_world("dp=2,tp=2", rank=1).run(fn)``: one rank, and the others are imagined."""
    return _worlds(request, "fake")


@pytest.fixture
def spmd_in_process_world(request: pytest.FixtureRequest) -> WorldMaker:
    """``spmd_in_process_world("dp=2,tp=2").run(fn)``: all ranks in this process, in the same order every time."""
    return _worlds(request, "in-process")


@pytest.fixture
def spmd_process_world(request: pytest.FixtureRequest) -> WorldMaker:
    """``spmd_process_world("dp=2,tp=2").run(fn)``: a process per rank, talking over gloo."""
    return _worlds(request, "processes")


@pytest.fixture(params=["fake", "in-process", "processes"])
def spmd_world(request: pytest.FixtureRequest) -> WorldMaker:
    """Each of the three worlds, one after another."""
    return _worlds(request, request.param)


@pytest.fixture(name="assert_same_on_one_device")
def _assert_same(request: pytest.FixtureRequest) -> Callable[..., object]:
    """``shardwise.testing.assert_same_on_one_device``, without an import."""
    from .one_device import assert_same_on_one_device

    return assert_same_on_one_device
