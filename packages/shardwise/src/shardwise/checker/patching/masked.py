"""Which Python functions of PyTorch are whole operators? Those of ``torch.masked``, because they read sizes.

``torch.masked.mean`` divides by the number of elements in its operand's shape, which is a rank's: step by step every
call in it is right, and the result is not. No function mode shows these functions. So while some thread checks, their
code is swapped for a call of ours: a program may long since hold them under names of its own
(``from torch.masked import mean``), which replacing the module's attributes would not reach.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.masked

from shardwise.interop.boundary import finish, outermost
from shardwise.interop.op_names import op_name
from shardwise.interop.session import paused
from shardwise.op_rules.registry import lookup
from shardwise.types.errors import SpmdTypeError

from ..dispatch import handler_of_rule
from ..state.session import CheckSession

SessionOf = Callable[[], CheckSession | None]
_OURS = "_shardwise_{}"


def redirect(session_of: SessionOf) -> Callable[[], None]:
    """Lead every function of ``torch.masked`` that has a rule through the check; gives the way back.

    ``session_of``  the check of this thread, None if there is none or it is not to look.
    """
    swapped = _swapped(session_of)
    for function, code, name, ours in swapped:
        function.__globals__[name] = ours
        function.__code__ = _pass_on.__code__.replace(co_names=(name,), co_name=code.co_name)

    def undo() -> None:
        for function, code, name, _ in swapped:
            function.__code__ = code
            del function.__globals__[name]

    return undo


@functools.cache
def _swapped(session_of: SessionOf) -> tuple[tuple[types.FunctionType, types.CodeType, str, Callable[..., Any]], ...]:
    """Each function with its own code, and the name and the function that the swapped code calls."""
    functions = [getattr(torch.masked, name) for name in torch.masked.__all__]
    known = [
        each for each in functions if isinstance(each, types.FunctionType) and op_name(each).find(lookup) is not None
    ]
    return tuple(
        (each, each.__code__, _OURS.format(each.__name__), _checked(_copy(each), session_of)) for each in known
    )


def _copy(function: types.FunctionType) -> types.FunctionType:
    """The function as PyTorch wrote it."""
    plain = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__module__ = function.__module__
    return plain


def _pass_on(*args: Any, **kwargs: Any) -> Any:
    return _ours(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821  # the name is put in by redirect


def _checked(plain: types.FunctionType, session_of: SessionOf) -> Callable[..., Any]:
    name = op_name(plain)
    rule = name.find(lookup)
    assert rule is not None, "only functions with a rule are led here"
    handler = handler_of_rule(name, rule)

    @outermost
    def checked(*args: Any, **kwargs: Any) -> Any:
        session = session_of()
        if session is None or session.paused or any(torch.masked.is_masked_tensor(value) for value in args):
            return plain(*args, **kwargs)
        try:
            return handler(session, functools.partial(_run, session, plain), args, kwargs)
        except SpmdTypeError as error:
            finish(error, name.shown)
            raise

    return checked


def _run(session: CheckSession, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with paused(session):
        return plain(*args, **kwargs)
