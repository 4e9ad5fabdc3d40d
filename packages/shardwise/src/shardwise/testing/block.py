"""A block of a test, or a whole test, checked on a mesh: ``spmd``, for unittest and anywhere else.

One rank runs in an imagined job, where types are right and values of other ranks are not there; or all ranks run
together in this process, with the values of a real job.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, attach
from shardwise.diagnostics.merged_results import merge
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import Collector, RunResult, group
from shardwise.diagnostics.text import render_result
from shardwise.host.blame import PACKAGE
from shardwise.mesh.entry import set_current_entry
from shardwise.mesh.program import MeshFollower
from shardwise.mesh.shape import MeshShape
from shardwise.worlds.failures import RankFailure
from shardwise.worlds.fake import fake_world
from shardwise.worlds.in_process.world import InProcessWorld

from .options import Partials, Ranks, TestOptions, coordinates, options_of

MESH_ARGUMENT = "spmd_mesh"
"""The argument of a test that gets the device mesh of the rank that runs it."""


class FindingsError(AssertionError):
    """A checked test has findings; ``result`` has them, and the text is theirs.

    Example:
        >>> issubclass(FindingsError, AssertionError)
        True
    """

    def __init__(self, text: str, result: RunResult) -> None:
        super().__init__(text)
        self.result = result


@dataclass
class Running:
    """The block that runs in this process: how it is checked, and what undoes it."""

    options: TestOptions
    stack: contextlib.ExitStack


_running: list[Running] = []


def running() -> Running | None:
    """The innermost block of one rank that runs in this process."""
    return _running[-1] if _running else None


@contextlib.contextmanager
def one_rank(options: TestOptions, rank: int) -> Iterator[DeviceMesh]:
    """Be this rank of an imagined job, in which the mesh is current until the test makes one of its own."""
    follower = MeshFollower()
    with contextlib.ExitStack() as stack:
        stack.enter_context(fake_world(rank, options.mesh.ranks, joined=True, on_mesh=follower.made))
        mesh = init_device_mesh("cpu", options.mesh.sizes, mesh_dim_names=options.mesh.names)
        follower.start(mesh)
        stack.callback(set_current_entry, None)
        _running.append(Running(options, stack))
        stack.callback(_running.pop)
        yield mesh


@contextlib.contextmanager
def checked(options: TestOptions, collector: Collector) -> Iterator[None]:
    """Check what runs inside. A call that is wrong whatever the types are becomes a finding and ends the block."""
    try:
        with checking(
            strict=options.strict,
            local=not options.global_types,
            partials=options.partials,
            collect=collector,
            observe=not options.strict,
        ):
            yield
    except SpmdTypeError as error:
        collector.add(attach(error))


def collector_of(options: TestOptions, name: str, rank: int | None) -> Collector:
    """What gathers the findings of one rank."""
    return Collector(mesh=str(options.mesh).replace(",", ", "), script=name, rank=rank)


def alone(options: TestOptions, rank: int, name: str, body: Callable[[DeviceMesh], object]) -> RunResult:
    """The result of ``body``, run as one rank of an imagined job. What it raises comes out as it is."""
    collector = collector_of(options, name, rank)
    with one_rank(options, rank) as mesh, noted(options, collector.result), checked(options, collector):
        body(mesh)
    return collector.result()


def together(
    options: TestOptions, name: str, body: Callable[[DeviceMesh], object], tell: Callable[[RunResult], None]
) -> None:
    """Run ``body`` on all ranks, in this process; ``tell`` gets what they have found as one result, whatever happens.

    Errors: what the first rank raises that does, with its number as a note; else those of ``InProcessWorld.run``.
    """
    __tracebackhide__ = True
    collectors = {rank: collector_of(options, name, rank) for rank in range(options.mesh.ranks)}

    def on_rank() -> None:
        mesh = init_device_mesh("cpu", options.mesh.sizes, mesh_dim_names=options.mesh.names)
        MeshFollower().start(mesh)
        try:
            with checked(options, collectors[mesh.get_rank()]):
                body(mesh)
        finally:
            set_current_entry(None)

    def result() -> RunResult:
        return merged((collector.result() for collector in collectors.values()), collectors)

    try:
        with noted(options, result):
            InProcessWorld(options.mesh.ranks).run(on_rank)
    except RankFailure as failure:
        error = failure.__cause__
        if error is None:
            raise
        error.add_note(f"on {coordinates(failure.rank, options.mesh)}")
        raise error.with_traceback(_own_part(error.__traceback__)) from None
    finally:
        tell(options.reported(result()))


def _own_part(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame of the test on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(PACKAGE):
        traceback = traceback.tb_next
    return traceback


@contextlib.contextmanager
def noted(options: TestOptions, result: Callable[[], RunResult]) -> Iterator[None]:
    """An exception leaves with what was found until then as a note."""
    try:
        yield
    except Exception as error:
        found = options.reported(result())
        if found.findings:
            error.add_note(f"before it shardwise has found:\n\n{render_result(found)}")
        raise


def merged(results: Iterable[RunResult], ranks: Iterable[int]) -> RunResult:
    """The results of ranks as one; that of one rank as it is."""
    by_rank = dict(zip(ranks, results, strict=True))
    # What the ranks call is compared where they meet, so there is nothing to say of it at the end.
    return next(iter(by_rank.values())) if len(by_rank) == 1 else replace(merge(by_rank), ranks=())


def verdict(result: RunResult, expect: tuple[str, ...]) -> RunResult | None:
    """What a test fails for: the errors that it does not expect, or that nothing was checked. None if it passes."""
    unexpected = tuple(one for one in result.errors if any(place.code not in expect for place in one.places))
    missing = _missing(result, expect)
    if unexpected or missing:
        return replace(result, findings=group((*unexpected, *result.warnings)))
    return result if result.ending is not None and not expect else None


def _missing(result: RunResult, expect: tuple[str, ...]) -> list[str]:
    """The codes that are expected and not found."""
    found = {place.code for finding in result.findings for place in finding.places}
    return [code for code in expect if code not in found]


def failure_text(result: RunResult, expect: tuple[str, ...], *, color: bool = False, width: int = 120) -> str | None:
    """Why a test with this result fails, as text; None if it passes."""
    failing = verdict(result, expect)
    if failing is None:
        return None
    missing = _missing(result, expect)
    if missing:
        found = ", ".join(dict.fromkeys(finding.code for finding in result.errors)) or "no error"
        head = f"expected {', '.join(missing)}, found {found} in {counted(result.checked_ops, 'checked operation')}"
        return f"{head}\n\n{render_result(failing, color=color, width=width)}" if failing.errors else head
    if failing.ending is not None and not failing.errors:
        return (
            f"{failing.ending.headline}\n"
            "  = help: assert_type(x, {...}) on the inputs says what they are\n"
            "  = help: a test without typed tensors needs no mark"
        )
    return render_result(failing, color=color, width=width)


def raise_findings(result: RunResult, expect: tuple[str, ...]) -> None:
    """FindingsError if a test with this result fails."""
    __tracebackhide__ = True
    text = failure_text(result, expect)
    if text is not None:
        raise FindingsError(f"\n{text}", result)


def across_ranks(
    options: TestOptions, name: str, fn: Callable[..., object], tell: Callable[[RunResult], None]
) -> Callable[..., object]:
    """``fn`` run by several ranks, or by one: ``tell`` gets the result of them all. A coroutine function stays one.

    The mesh argument is each rank's own; tensors and modules among the arguments are copied for each rank.
    """

    def given(arguments: Mapping[str, object], mesh: DeviceMesh, several: bool) -> dict[str, object]:
        own = {key: _copied(value) if several else value for key, value in arguments.items()}
        return {**own, MESH_ARGUMENT: mesh} if MESH_ARGUMENT in arguments else own

    def run(*args: object, **arguments: object) -> None:
        __tracebackhide__ = True
        if options.ranks is None:
            together(options, name, lambda mesh: _finish(fn(*args, **given(arguments, mesh, True))), tell)
            return
        several = len(options.ranks) > 1
        results = [
            alone(options, rank, name, lambda mesh: fn(*args, **given(arguments, mesh, several)))
            for rank in options.ranks
        ]
        tell(options.reported(merged(results, options.ranks)))

    async def run_async(*args: object, **arguments: object) -> None:
        __tracebackhide__ = True
        if options.ranks is None:
            await asyncio.to_thread(run, *args, **arguments)
            return
        results = []
        for rank in options.ranks:
            collector = collector_of(options, name, rank)
            with one_rank(options, rank) as mesh, noted(options, collector.result), checked(options, collector):
                came = fn(*args, **given(arguments, mesh, len(options.ranks) > 1))
                if inspect.isawaitable(came):
                    await came
            results.append(collector.result())
        tell(options.reported(merged(results, options.ranks)))

    return functools.wraps(fn)(run_async if inspect.iscoroutinefunction(fn) else run)


def _finish(came: Awaitable[object] | object) -> object:
    """What a coroutine gives, run on a loop of this thread's own; anything else as it is."""
    return asyncio.run(came) if inspect.iscoroutine(came) else came


def _copied(value: object) -> object:
    return copy.deepcopy(value) if isinstance(value, torch.Tensor | torch.nn.Module) else value


class spmd:
    """Check a test on a mesh: a decorator of test functions and methods, or a ``with`` block that gives the mesh.

    ``mesh``          axes with their sizes, ``"dp=2,tp=2"`` or ``{"dp": 2, "tp": 2}``; current inside.
    ``global_types``  global types too: which dims are sharded.
    ``strict``        every tensor in play needs a type.
    ``ranks``         the rank that is run in an imagined job (0); a list of them, one after another; or ``"all"``: all
                      together in this process, with the values of a real job. Several ranks need a decorator.
    ``partials``      as for ``typecheck``.
    ``expect``        codes of the errors that the test is about: it passes if these are found and no others.

    Errors: FindingsError, an AssertionError with the findings as its text, where the block or function ends. SW903
    for what is no mesh, SW905 for another option that is none.
    Example:
        >>> from shardwise.testing import spmd
        >>> @spmd(mesh="tp=2", expect="SW112")
        ... def test_relu_of_a_pending_sum():
        ...     torch.relu(assert_type(torch.ones(4), {"tp": P}))
        >>> test_relu_of_a_pending_sum()
    """

    def __init__(
        self,
        mesh: str | Mapping[str, int] | MeshShape,
        *,
        global_types: bool = False,
        strict: bool = False,
        ranks: Ranks = 0,
        partials: Partials = "infer",
        expect: str | Iterable[str] = (),
    ) -> None:
        self.options = options_of(
            mesh, global_types=global_types, strict=strict, ranks=ranks, partials=partials, expect=expect
        )
        self._blocks: list[tuple[contextlib.ExitStack, Collector]] = []

    def __call__(self, function: Callable[..., object]) -> Callable[..., object]:
        if not inspect.isroutine(function):
            raise SpmdArgumentError(f"spmd decorates functions and methods, got {function!r}", code="SW905")

        def judge(result: RunResult) -> None:
            __tracebackhide__ = True
            if sys.exc_info()[0] is None:  # else the test has raised, which says more
                raise_findings(result, self.options.expect)

        signature = inspect.signature(function)
        inner = across_ranks(self.options, function.__qualname__, function, judge)
        if MESH_ARGUMENT not in signature.parameters:
            return inner
        outer = functools.partial(inner, **{MESH_ARGUMENT: None})

        @functools.wraps(function)
        def with_mesh(*args: object, **arguments: object) -> object:
            return outer(*args, **arguments)

        kept = [one for name, one in signature.parameters.items() if name != MESH_ARGUMENT]
        with_mesh.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return with_mesh

    def __enter__(self) -> DeviceMesh:
        ranks = self.options.ranks
        if ranks is None or len(ranks) > 1:
            said = "a with block is run by one rank: use spmd as a decorator, or leave ranks out"
            raise SpmdArgumentError(said, code="SW905")
        collector = collector_of(self.options, "with spmd", ranks[0])
        stack = contextlib.ExitStack()
        mesh = stack.enter_context(one_rank(self.options, ranks[0]))
        try:
            stack.enter_context(noted(self.options, collector.result))
            stack.enter_context(checked(self.options, collector))
        except BaseException:
            stack.close()
            raise
        self._blocks.append((stack, collector))
        return mesh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        __tracebackhide__ = True
        stack, collector = self._blocks.pop()
        swallowed = stack.__exit__(kind, error, traceback)
        if error is None or swallowed:
            raise_findings(self.options.reported(collector.result()), self.options.expect)
        return bool(swallowed)
