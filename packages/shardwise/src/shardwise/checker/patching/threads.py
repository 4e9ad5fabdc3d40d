"""Threads that the program starts while a check runs: nothing is checked there, so what they write is known no more."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping

import torch
from torch.overrides import TorchFunctionMode

from shardwise.diagnostics.source import is_library_calling, user_location
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.tensors.tagging import forget_memory, type_of
from shardwise.interop.torch_call import Arguments, TorchFunction

from ..collectives.raw import raw_handler
from ..state.session import CheckSession
from .patches import Patches, Plugin, checking_session


class OtherThread(TorchFunctionMode):
    """Forgets what is known of tensors that a call on another thread writes, or hands to a collective."""

    def __init__(self, session: CheckSession) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(
        self, func: TorchFunction, types: object, args: Arguments = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if raw_handler(func) is not None:
            written = [*args, *kwargs.values()]
        else:
            written = [kwargs.get("out"), args[0] if args and op_name(func).in_place else None]
        known = [x for x in written if isinstance(x, torch.Tensor) and type_of(x).axes]
        for x in known:
            forget_memory(x)
        if known:
            self.session.lose("the type of what another thread has written", user_location())
        return result


def _install(patches: Patches) -> None:
    patches.replace_attribute(threading.Thread, "start", _starting)


def _starting(plain: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(plain)
    def start(self: threading.Thread) -> None:
        session = checking_session()
        if session is not None and not is_library_calling():
            self.__dict__["run"] = functools.partial(_run, session, self.run)
        plain(self)

    return start


def _run(session: CheckSession, run: Callable[[], None]) -> None:
    with OtherThread(session):
        run()


PLUGIN = Plugin("writes of other threads", _install)
