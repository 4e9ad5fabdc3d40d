"""What does one running check remember? Its strictness, and where its findings go."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, Literal

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector
from shardwise.interop.torch_compat import in_backward
from shardwise.types.errors import SpmdTypeError

_warned: dict[Any, Any] = {}

Partials = Literal["infer", "explicit"]


class SpmdTypeWarning(UserWarning):
    """A finding of severity warning, when findings are raised and not collected."""


def _warn(finding: Finding) -> None:
    """A Python warning at the finding's location; like every warning it is shown once per location by default."""
    location = finding.location
    if location is None:
        warnings.warn(finding.headline, SpmdTypeWarning, stacklevel=3)
    else:
        warnings.warn_explicit(finding.headline, SpmdTypeWarning, location.file, location.line, registry=_warned)


class CheckSession:
    """The state of one check on one thread; implements ``interop.session.Session``.

    ``strict``      an operand without a type, or without one for an axis in play, is an error.
    ``local``       only local types are propagated.
    ``partials``    ``"explicit"``: a contraction over a sharded dim must ask for its partial result.
    ``collector``   where findings go while ``collecting``; None means that the first finding is raised.
    ``dry``         the mode of tensors without data, while a function runs on those; else None.
    ``diverging``   where the ranks have parted ways, in the branch that is being checked.
    ``synchronised`` mesh axes along which random numbers are declared to be equal.
    ``mode``        what shows this session the calls; code inside a backward pass gets it back.
    ``in_typed_code``  such code is running: a hook, the backward of a declared function.
    ``judged``      the codes that are told there; None: all of them.
    ``passes``      the backward passes that are running, innermost last; see ``gradients``.
    ``replicas``    the wrappers seen, and whether each sums gradients in the next backward pass; see ``replicas``.
    ``checked``, ``unchecked``  calls judged, and calls passed over because no operand had a type, since ``flush``.
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
        self.checked = 0
        self.unchecked = 0
        self.dry: Any = None
        self.diverging: tuple[Any, ...] = ()
        self.synchronised: frozenset[Any] = frozenset()
        self.mode: Any = None
        self.in_typed_code = False
        self.judged: frozenset[str] | None = None
        self.passes: list[Any] = []
        self.replicas: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    @property
    def collecting(self) -> bool:
        return self.collector is not None

    def report(self, error: SpmdTypeError) -> None:
        """Take an error that carries its finding: collect it and return, or raise it.

        What autograd runs in backward and is neither a hook nor declared was judged in forward, or cannot be.
        """
        if in_backward() and not self.in_typed_code:
            return
        if self.judged is not None and error.code not in self.judged:
            return
        warning = error.finding.severity is Severity.WARNING
        if self.collector is not None:
            self.collector.add(error.finding)
        elif warning:
            _warn(error.finding)
        else:
            raise error

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Inside the block calls are checked, from within the handler of a call too."""
        paused, self.paused = self.paused, False
        try:
            with self.mode:
                yield
        finally:
            self.paused = paused

    def trust(self, what: str, location: Any) -> None:
        if self.collector is not None:
            self.collector.trust(what, location)

    def flush(self) -> None:
        """Hand the counts of judged and passed-over calls to the collector."""
        if self.collector is not None:
            self.collector.count_checked(self.checked)
            self.collector.count_unchecked(self.unchecked)
        self.checked = self.unchecked = 0
