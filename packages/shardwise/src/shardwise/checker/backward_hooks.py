"""Does a module's backward hook keep the types of the gradients it sees? It does if its author says so.

A full backward hook may return other gradients than it was given, on this rank alone; nothing in its signature tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardwise.diagnostics.boundary import attach
from shardwise.types.errors import SpmdTypeError

from .session import CheckSession

MARK = "__shardwise_local_hook__"


def check_hooks(session: CheckSession, module: Any, hooks: Iterable[Any]) -> None:
    """Report the hooks of ``module`` that nobody has vouched for. Errors: SW303."""
    for hook in hooks:
        if getattr(hook, MARK, False) or str(getattr(hook, "__module__", "")).startswith("torch."):
            continue
        name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
        error = SpmdTypeError(
            f"the backward hook {name} of {type(module).__name__} is not registered: it may return gradients of "
            f"another type",
            code="SW303",
            help=(f"register_local_backward_hook({name}) if it neither communicates nor looks at ranks",),
        )
        attach(error, op=type(module).__name__)
        session.report(error)
