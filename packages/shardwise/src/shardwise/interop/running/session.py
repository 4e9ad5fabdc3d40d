"""The check that runs on this thread: its options, where its findings go, and whether it is paused.

The checker enters a ``Session`` when it starts; annotation functions, collectives and the training step ask
``current()``. Sessions are thread-local, so two threads may check two programs. ``erased`` turns the whole annotation
layer off for production.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any, Final, Literal

import torch
import typing_extensions

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.errors import SpmdTypeError, attach
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector
from shardwise.diagnostics.source import Site, add_internal_prefix
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.mesh.axis import MeshAxis

from ..torch_compat import in_backward
from .module_path import module_path
from .silence import is_silenced, silent_code

# Call sites are looked for in the user's program; torch's own frames are not it.
add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
add_internal_prefix(typing_extensions.__file__)  # torch's deprecated functions are wrapped by it

erased: bool = os.environ.get("SHARDWISE_ERASE") == "1"
"""True: annotation functions return at once and no tensor is ever tagged. Set it before the program starts."""


Partials = Literal["infer", "explicit"]
_warned: dict[Any, Any] = {}


class SpmdTypeWarning(UserWarning):
    """A finding of severity warning, when findings are raised and not collected."""


def _warn(finding: Finding) -> None:
    """A Python warning at the finding's location; like every warning it is shown once per location by default."""
    location = finding.location
    if location is None:
        warnings.warn(finding.headline, SpmdTypeWarning, stacklevel=3)
    else:
        warnings.warn_explicit(finding.headline, SpmdTypeWarning, location.file, location.line, registry=_warned)


class Session:
    """One check on one thread: its strictness, and where its findings go.

    ``strict``      an operand without a type, or without one for an axis in play, is an error.
    ``local``       only local types are propagated, and no shards.
    ``partials``    ``"explicit"``: a contraction over a sharded dim must ask for its partial result.
    ``collector``   where findings go while ``collecting``; None means that the first finding is raised.
    ``paused``      nothing is checked for now.
    ``checked``, ``unchecked``  calls judged, and calls passed over because no operand had a type, since ``flush``.
    ``synchronised`` mesh axes along which random numbers are declared to be equal.
    ``equal_by_marks`` those along which marks of a library alone say what is equal: ranks need not compute it alike.
    ``in_typed_code``  code with types runs inside a backward pass: a hook, the backward of a declared function.
    ``judged``      the codes that are told there; None: all of them.
    ``says_types``  the program has said a type, so that it can also say which generators are alike.
    ``seeded_apart``  the axes along which the seed of the default generators differs; None: it was not seen.
    """

    def __init__(
        self,
        *,
        strict: bool = True,
        local: bool = True,
        partials: Partials = "infer",
        collector: Collector | None = None,
    ) -> None:
        self.strict = strict
        self.local = local
        self.partials = partials
        self.collector = collector
        self.paused = False
        self.pauser: FrameType | None = None
        self.checked = 0
        self.unchecked = 0
        self.synchronised: frozenset[MeshAxis] = frozenset()
        self.equal_by_marks: frozenset[MeshAxis] = frozenset()
        self.in_typed_code = False
        self.judged: frozenset[str] | None = None
        self.says_types = False
        self.seeded_apart: frozenset[MeshAxis] | None = None

    @property
    def collecting(self) -> bool:
        """True if findings are collected and the program goes on; False if they are raised."""
        return self.collector is not None

    def report(self, error: SpmdTypeError) -> None:
        """Take an error that carries its finding: collect it and return, or raise it.

        What autograd runs in backward and is neither a hook nor declared was judged in forward, or cannot be.
        """
        if in_backward() and not self.in_typed_code:
            return
        if self.judged is not None and error.code not in self.judged:
            return
        finding = attach(error)
        path = "" if finding.modules else module_path()
        if path:
            finding = error.finding = replace(finding, modules=(path,))
        if self.collector is not None:
            self.collector.add(finding)
        elif finding.severity is Severity.WARNING:
            _warn(finding)
        else:
            raise error

    def tell(self, finding: Finding) -> None:
        """Collect a finding that is no error, with the module that it is made in."""
        path = module_path()
        if self.collector is not None:
            self.collector.add(replace(finding, modules=(path,)) if path else finding)

    def is_suspended(self) -> bool:
        """True if the generator that has paused the check is suspended itself: other code runs now."""
        return self.pauser is not None and self.pauser.f_back is None

    def trust(self, what: str, location: SourceLocation | Site | None) -> None:
        """Note something that is believed and not proven, for the list in the report."""
        if self.collector is not None:
            self.collector.trust(what, location)

    def lose(self, what: str, location: SourceLocation | Site | None) -> None:
        """Note a type that is not known any more though nothing was rejected, for the list in the report."""
        if self.collector is not None:
            self.collector.lose(what, location)

    def leave_out(self, parts: Iterable[str]) -> None:
        """Parts of the library are not followed on this torch: for the report, or a warning if there will be none."""
        if self.collector is not None:
            self.collector.leave_out(parts)
            return
        for part in parts:
            warnings.warn_explicit(f"not followed: {part}", SpmdTypeWarning, "shardwise", 0, registry=_warned)

    def flush(self) -> None:
        """Hand the counts of judged and passed-over calls to the collector."""
        if self.collector is not None:
            self.collector.count_checked(self.checked)
            self.collector.count_unchecked(self.unchecked)
        self.checked = self.unchecked = 0

    @contextlib.contextmanager
    def resumed(
        self, *, strict: bool | None = None, local: bool | None = None, partials: Partials | None = None
    ) -> Iterator[None]:
        """Inside the block calls are checked, paused or not before, with the options that are given."""
        before = self.strict, self.local, self.partials, self.paused
        self.strict = before[0] if strict is None else strict
        self.local = before[1] if local is None else local
        self.partials = before[2] if partials is None else partials
        self.paused = False
        try:
            yield
        finally:
            self.strict, self.local, self.partials, self.paused = before


@contextlib.contextmanager
def paused(session: Session, pause: bool = True, pauser: FrameType | None = None) -> Iterator[None]:
    """``session`` checks nothing inside the ``with`` block (or, with ``pause=False``, checks again).

    ``pauser``  the generator whose block it is: while that is suspended, the pause is not in force.
    """
    before = session.paused, session.pauser
    session.paused, session.pauser = pause, pauser
    try:
        yield
    finally:
        session.paused, session.pauser = before


class _Local(threading.local):
    session: Session | None = None


_local = _Local()


def current() -> Session | None:
    """The session that checks this thread now; None when checking is off or paused."""
    session = _local.session
    if session is None or (session.paused and not session.is_suspended()) or (silent_code and is_silenced()):
        return None
    return session


def this_thread() -> Session | None:
    """The session of this thread, paused or not."""
    return _local.session


def enter(session: Session | None) -> Session | None:
    """Make ``session`` this thread's session and return the previous one, to be restored with another call."""
    previous = _local.session
    _local.session = session
    return previous


def is_type_checking() -> bool:
    """True while the calling thread is being checked. Under torch.compile it is the constant False.

    Example:
        >>> is_type_checking()
        True
    """
    return not torch.compiler.is_compiling() and current() is not None


class _TypeChecking:
    """True exactly while the calling thread is being checked."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return is_type_checking()

    def __repr__(self) -> str:
        return f"TYPE_CHECKING({bool(self)})"


TYPE_CHECKING: Final = _TypeChecking()
"""True where the calling thread is being checked: ``if TYPE_CHECKING: assert_type(...)`` costs one test elsewhere.

Example:
    >>> bool(TYPE_CHECKING)
    True
    >>> with no_typecheck():
    ...     print(bool(TYPE_CHECKING))
    False
"""
