"""The typing rule that is running on this thread, and which tensors it has yet to look at.

The checker opens a ``TypingRuleRun`` around a rule of an ``autograd.Function``; the type operators and ``assert_type``
note the tensors they see. It lives here because the annotation functions and the checker are folders of one level.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator


class TypingRuleRun:
    """One call of a rule.

    ``local``   shard dims are ignored, as in local mode.
    ``strict``  an operand that says nothing about an axis in play is an error.
    ``owner``   what to call the rule in messages.
    ``steps``   the collectives and coercions that the rule says the function is made of: name, axis, dst.
    """

    __slots__ = ("_names", "_unseen", "local", "owner", "steps", "strict")

    def __init__(self, owner: str, arguments: Iterable[tuple[str, object]], *, local: bool, strict: bool) -> None:
        self.owner = owner
        self.local = local
        self.strict = strict
        self.steps: list[tuple[str, object, object]] = []
        # The tensors are kept alive by the call's arguments, so their ids are theirs alone.
        self._names: dict[int, str] = {}
        for name, tensor in arguments:
            self._names.setdefault(id(tensor), name)
        self._unseen = dict(self._names)

    def name_of(self, x: object) -> str | None:
        """The argument of forward that ``x`` is, or None."""
        return self._names.get(id(x))

    def see(self, x: object) -> None:
        """The rule has taken ``x`` into account."""
        self._unseen.pop(id(x), None)

    @property
    def unseen(self) -> list[str]:
        """The tensor arguments that the rule has not looked at so far."""
        return list(self._unseen.values())


class _Local(threading.local):
    run: TypingRuleRun | None = None


_local = _Local()


def current_run() -> TypingRuleRun | None:
    """The rule that runs on this thread, or None."""
    return _local.run


def see(x: object) -> None:
    """Note that the running rule, if there is one, has looked at ``x``."""
    if _local.run is not None:
        _local.run.see(x)


@contextlib.contextmanager
def running(run: TypingRuleRun) -> Iterator[TypingRuleRun]:
    """``run`` is this thread's rule inside the ``with`` block."""
    before = _local.run
    _local.run = run
    try:
        yield run
    finally:
        _local.run = before
