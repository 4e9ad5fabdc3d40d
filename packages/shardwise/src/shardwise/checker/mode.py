"""What sees every torch call? A ``TorchFunctionMode``; it finds the callable's handler and gets out of the way.

While a handler runs, PyTorch has taken the mode off the stack, so whatever an operator does inside itself (a composite
in ``torch.nn.functional``, a whole backward pass) is not seen call by call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.calls.boundary import finish, outermost
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.running.silence import is_silenced, silent_code
from shardwise.interop.torch_call import Arguments, TorchFunction

from .dispatch import handler_for, run_unread
from .observation.own_calls import has_tensor, has_typed, own_site
from .operators.in_flight import check_call
from .operators.judging import UnreadableArguments
from .operators.ordinary import Handler
from .state.session import CheckSession

_handlers: dict[Any, Handler] = {}
_NO_KWARGS: dict[str, Any] = {}


class CheckMode(TorchFunctionMode):
    """Checks the calls of one thread for ``session``.

    Example:
        >>> with no_typecheck(), checking() as session:
        ...     print(isinstance(session.mode, CheckMode))
        True
    """

    def __init__(self, session: CheckSession) -> None:
        super().__init__()
        self.session = session
        session.mode = self

    @outermost
    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: Arguments = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        # Under Dynamo the mode is traced along with the program: the constant True leaves nothing of it in the graph.
        session = self.session
        if is_dynamo_compiling() or (session.paused and not session.is_suspended()) or (silent_code and is_silenced()):
            return func(*args, **kwargs) if kwargs else func(*args)
        if types and (stand_in := _stand_in(types)) is not None:  # what it does inside is seen
            with self:
                return stand_in.__torch_function__(func, types, args, kwargs or _NO_KWARGS)
        handler = _handlers.get(func)
        if handler is None:
            handler = _handlers.setdefault(func, handler_for(func))
        try:
            if session.in_flight:
                check_call(session, func, args, kwargs or _NO_KWARGS)
            return handler(session, func, args, kwargs or _NO_KWARGS)
        except SpmdTypeError as error:
            finish(error, getattr(func, "__name__", ""))
            raise
        except UnreadableArguments as error:
            return run_unread(session, func, args, kwargs or _NO_KWARGS, error.op)


def _stand_in(types: Sequence[type]) -> Any:
    """The class of an argument that is no tensor and answers calls of torch in its own way; None if there is none."""
    return next((cls for cls in types if not issubclass(cls, torch.Tensor) and cls is not Scalar), None)


class NotingMode(CheckMode):
    """Checks for a report, in which calls count that have to do with typed tensors, and lists what was passed over."""

    def __init__(self, session: CheckSession, collector: Collector) -> None:
        super().__init__(session)
        self.collector = collector

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: Arguments = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        session = self.session
        named = kwargs or _NO_KWARGS
        checked, unchecked = session.checked, session.unchecked
        typed = has_typed(args, named)
        if session.untyped is not None:
            session.untyped.losing = False
        result = super().__torch_function__(func, types, args, kwargs)
        if session.untyped is not None:
            session.untyped.follow(op_name(func), args, named, result)
        if session.data is not None and session.observe and session.averaged:
            session.data.met(session, op_name(func), args, named)
        if session.unchecked != unchecked:
            session.unchecked = unchecked
            site = own_site() if has_tensor(args, named) else None
            if site is not None:
                self.collector.pass_over(op_name(func).shown, site)
        elif session.checked != checked and not typed and not has_typed((result,), _NO_KWARGS):
            session.checked = checked
        return result
