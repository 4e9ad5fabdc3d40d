"""The functions of ``torch.masked``, which are whole operators, because they read sizes.

``torch.masked.mean`` divides by the number of elements in its operand's shape, which is a rank's: step by step every
call in it is right, and the result is not. No function mode shows these functions. So while some thread checks, ours
stand in their places, in ``torch.masked`` and in every module that has imported them under whatever name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType

import torch
import torch.masked

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.calls.boundary import finish, outermost
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.running.session import paused
from shardwise.op_rules.registry import lookup

from ..dispatch import handler_of_rule
from ..state.session import CheckSession
from .patches import Plugin, Wrappers, checking_session


@functools.cache
def _wrappers() -> Wrappers:
    """Each function that has a rule, and ours."""
    functions = [getattr(torch.masked, name) for name in torch.masked.__all__]
    known = [each for each in functions if isinstance(each, FunctionType) and op_name(each).find(lookup) is not None]
    return {each: _checked(each) for each in known}


def _checked(plain: Callable[..., object]) -> Callable[..., object]:
    name = op_name(plain)
    rule = name.find(lookup)
    assert rule is not None, "only functions with a rule are led here"
    handler = handler_of_rule(name, rule)

    @outermost
    @functools.wraps(plain)
    def checked(*args: object, **kwargs: object) -> object:
        session = checking_session()
        if session is None or session.paused or any(torch.masked.is_masked_tensor(value) for value in args):
            return plain(*args, **kwargs)
        try:
            return handler(session, functools.partial(_run, session, plain), args, kwargs)
        except SpmdTypeError as error:
            finish(error, name.shown)
            raise

    return checked


def _run(session: CheckSession, plain: Callable[..., object], *args: object, **kwargs: object) -> object:
    with paused(session):
        return plain(*args, **kwargs)


PLUGIN = Plugin("functions of torch.masked", everywhere=_wrappers)
