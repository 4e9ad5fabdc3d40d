"""Regions where checking is different: local, unchecked, and functions with a declared boundary.

All of them cost nothing but a look at one thread-local while nothing is checked.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from shardwise.diagnostics.errors import SpmdArgumentError, shown
from shardwise.diagnostics.source import user_frame
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.running.session import current, paused
from shardwise.interop.running.silence import code_of, silent_code
from shardwise.types.infer_marker import Infer

from .boundary_types import Contract

Function = TypeVar("Function", bound=Callable[..., Any])


@contextlib.contextmanager
def local() -> Iterator[None]:
    """Check local types only inside the block; results come without a partition spec.

    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": S(0)})
        >>> with local():
        ...     print(typeof(x * 2))
        f32[4, 8] {dp: R, tp: V}
    """
    session = current()
    if session is None:
        yield
    else:
        with session.resumed(local=True):
            yield


def local_map(*, in_types: object = Infer, out_types: object) -> Callable[[Function], Function]:
    """Decorate a function whose body runs in local mode between declared types.

    ``in_types``   types of the arguments, built like the tuple of positional arguments, or a dict from parameter
                   names; ``Infer`` takes the arguments as they come.
    ``out_types``  types of the results, built like the return value; a result that the body typed must agree.
    Errors: SW140, at the call, where arguments or results are not as declared.
    Example:
        >>> @local_map(in_types={"x": {"tp": S(0)}}, out_types={"tp": P})
        ... def column_sums(x):
        ...     return reinterpret(x.sum(0), "tp", src=V, dst=P)
        >>> print(typeof(column_sums(assert_type(torch.ones(4, 8), {"tp": S(0)}))))
        f32[8] {dp: R, tp: P}
    """

    def decorate(function: Function) -> Function:
        return _bounded(Contract("local_map", function, in_types, out_types), function, pause=False)

    return decorate


@overload
def no_typecheck() -> contextlib.AbstractContextManager[None]: ...


@overload
def no_typecheck(function: Function, /) -> Function: ...


@overload
def no_typecheck(*, in_types: object = ..., out_types: object) -> Callable[[Function], Function]: ...


def no_typecheck(function: Callable[..., object] | None = None, /, **types: object) -> object:
    """Switch checking off: ``with no_typecheck():``, ``@no_typecheck``, or with types at the boundary
    ``@no_typecheck(in_types=..., out_types=...)``, which are checked on the way in and believed on the way out.

    A ``typecheck()`` inside switches it on again. Errors: TypeError for any other combination of arguments.

    Example:
        >>> x = assert_type(torch.ones(4), {"tp": P})
        >>> with no_typecheck():
        ...     print(typeof(torch.relu(x)))
        f32[4]
    """
    if types:
        if function is not None:
            raise SpmdArgumentError(
                "no_typecheck takes a function or types, not both; use @no_typecheck(out_types=...)"
            )
        unknown = set(types) - {"in_types", "out_types"}
        if unknown or "out_types" not in types:
            named = f", got {', '.join(sorted(types))}"
            raise SpmdArgumentError(
                f"out_types is required for typed no_typecheck, beside an optional in_types{named}",
                help=("@no_typecheck(in_types=Infer, out_types=...)",),
            )
        in_types, out_types = types.get("in_types", Infer), types["out_types"]
        return lambda body: _bounded(Contract("no_typecheck", body, in_types, out_types), body, pause=True)
    if function is None:
        return _unchecked()
    if not callable(function):
        raise SpmdArgumentError(
            f"no_typecheck takes a function, got {shown(function)} of type {type(function).__name__}"
        )
    return _unchecked()(function)


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    session = current()
    if session is None:
        yield
    else:
        frame = user_frame()
        generator = frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR
        with paused(session, pauser=frame if generator else None):
            yield


def _bounded(contract: Contract, function: Function, *, pause: bool) -> Function:
    @boundary
    @functools.wraps(function)
    def bounded(*args: object, **kwargs: object) -> object:
        session = current()
        if session is None:
            return function(*args, **kwargs)
        contract.enter(session, args, kwargs)
        with paused(session) if pause else session.resumed(local=True):
            result = function(*args, **kwargs)
        contract.leave(session, result)
        return result

    return bounded  # type: ignore[return-value]


def register_no_typecheck(function: Function) -> Function:
    """Check nothing while ``function`` is on the stack of the calling thread. It is not wrapped, so whoever imported it
    before is covered too; a ``typecheck()`` inside does not switch checking on again. Cannot be undone.

    Errors: TypeError for what has no Python code, such as a builtin.
    Example:
        >>> @register_no_typecheck
        ... def logged(x):
        ...     return float(torch.relu(x).sum())
        >>> logged(assert_type(torch.ones(4), {"tp": P}))
        4.0
    """
    code = code_of(function)
    if code is None:
        raise SpmdArgumentError(
            f"register_no_typecheck takes a Python function, got {shown(function)} of type {type(function).__name__}"
        )
    silent_code.add(code)
    return function
