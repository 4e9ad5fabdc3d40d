"""How is checking switched on? ``typecheck`` for a program, ``checking`` for a tool that collects findings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from shardwise.diagnostics.errors import SpmdValueError, shown
from shardwise.diagnostics.result import Collector
from shardwise.interop.running import session as sessions
from shardwise.interop.running.session import Partials

from ..mode import CheckMode, NotingMode
from ..operators.in_flight import tell_never_waited
from ..operators.scale_lost import tell_unstepped
from ..parts.micro_batches import settle_cuts
from ..patching import installation as patches
from ..state.session import CheckSession
from .first_step import first_step_checked, is_asked_for

_STRICT = {"strict": True, "permissive": False}
_PARTIALS = ("infer", "explicit")


@contextlib.contextmanager
def typecheck(strict_mode: str | None = None, local: bool | None = None, partials: str | None = None) -> Iterator[None]:
    """Check every torch call of this thread inside the block; also a decorator.

    ``strict_mode``  ``"strict"`` (the default): an operand without a type meeting typed ones is an error;
                     ``"permissive"``: it is passed over.
    ``local``        True (the default): local types only. False: global types, partition specs propagate too.
    ``partials``     in global mode, ``"infer"`` (the default): a contraction over a sharded dim is partial;
                     ``"explicit"``: it must ask for it with ``out_partial_axes``.

    A nested block changes what it names, resumes a paused check, and restores both on exit. Findings are raised as
    ``SpmdTypeError``, or collected if an outer ``checking`` block collects. With ``SHARDWISE_FIRST_STEP=1`` in the
    environment they are reported when the first optimizer step has been taken, and nothing is checked from there on.
    Errors: SW905 (also a ValueError) for an unknown option.
    Example:
        >>> with typecheck(local=False):
        ...     x = assert_type(torch.ones(4, 8), {"tp": S(0)})
        ...     print(typeof(x.t()))
        f32[8, 4@tp] {dp: R}
    """
    strict = None if strict_mode is None else _option("strict_mode", strict_mode, _STRICT)
    if partials is not None:
        _option("partials", partials, dict.fromkeys(_PARTIALS))
    session = _running()
    if session is None and is_asked_for():
        with first_step_checked(
            lambda collector: checking(
                strict=strict is not False, local=local is not False, partials=_partials(partials), collect=collector
            )
        ):
            yield
        return
    if session is None:
        with _fresh(CheckSession(strict=strict is not False, local=local is not False, partials=_partials(partials))):
            yield
        return
    with session.resumed(
        strict=strict,
        local=None if local is None else bool(local),
        partials=None if partials is None else _partials(partials),
    ):
        yield


@contextlib.contextmanager
def checking(
    *,
    strict: bool = True,
    local: bool = True,
    partials: Partials = "infer",
    collect: Collector | None = None,
    observe: bool = False,
) -> Iterator[CheckSession]:
    """Check this thread and gather the findings in ``collect``; ``typecheck`` blocks inside join this check.

    ``observe``  what nobody has typed gets the types that wrappers and torch's own marks say.

    Example:
        >>> from shardwise.diagnostics.result import Collector
        >>> collector = Collector()
        >>> with no_typecheck(), checking(collect=collector):
        ...     y = torch.relu(assert_type(torch.ones(4), {"dp": R, "tp": P}))
        >>> [finding.code for finding in collector.result().findings]
        ['SW112']
    """
    session = CheckSession(strict=strict, local=local, partials=partials, collector=collect, observe=observe)
    with _fresh(session):
        yield session


@contextlib.contextmanager
def _fresh(session: CheckSession) -> Iterator[None]:
    patches.acquire()
    previous = sessions.enter(session)
    try:
        noting = collector if (collector := session.collector) is not None and collector.notes_calls else None
        with CheckMode(session) if noting is None else NotingMode(session, noting):
            yield
        if session.in_flight:
            tell_never_waited(session, ended=session.collecting)
        settle_cuts(session)
        tell_unstepped(session)
    finally:
        sessions.enter(previous)
        patches.release()
        session.flush()
        session.leave_out(patches.not_followed())


def _running() -> CheckSession | None:
    """This thread's session, paused or not."""
    session = sessions.this_thread()
    return session if isinstance(session, CheckSession) else None


def _partials(value: str | None) -> Partials:
    return "explicit" if value == "explicit" else "infer"


def _option(name: str, value: object, known: dict[str, Any]) -> Any:
    if not isinstance(value, str | None) or value not in known:
        choices = ", ".join(map(repr, known))
        raise SpmdValueError(f"typecheck got {name}={shown(value)}, expected one of {choices}")
    return known[value]


class SpmdTypeMode:
    """The class-style spelling of ``typecheck``: ``with SpmdTypeMode(strict_mode="strict"):``.

    Example:
        >>> with SpmdTypeMode(strict_mode="permissive"):
        ...     print(typeof(assert_type(torch.ones(4), {"tp": R}) * 2))
        f32[4] {dp: R, tp: R}
    """

    def __init__(self, strict_mode: str | None = None, local: bool | None = None, partials: str | None = None) -> None:
        self._block = typecheck(strict_mode, local, partials)

    def __enter__(self) -> SpmdTypeMode:
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)
