"""Autograd functions of the program: ``Function.apply`` runs a forward without telling anybody what it is."""

from __future__ import annotations

import functools
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.autograd.function_declarations import INTERNAL
from shardwise.interop.calls.boundary import finish, outermost
from shardwise.interop.torch_compat import RUN_FUNCTION_BACKWARD

from ..functions import function_backward
from ..functions.autograd_functions import checked_apply
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    patches.replace_attribute(torch.autograd.Function, "apply", _wrap_apply)
    patches.replace(RUN_FUNCTION_BACKWARD, function_backward.wrap_apply)


def _wrap_apply(original: Any) -> object:
    # A classmethod of Python in torch 2.13, one of C in 2.14: both bind alike.
    bind = type(original).__get__

    @outermost
    def apply(cls: type, *args: Any, **kwargs: Any) -> object:
        plain = bind(original, None, cls)
        session = checking_session()
        if session is None or getattr(cls, INTERNAL, False):
            return plain(*args, **kwargs)
        try:
            return checked_apply(session, cls, args, kwargs, lambda: plain(*args, **kwargs))
        except SpmdTypeError as error:
            finish(error, cls.__name__)
            raise

    return classmethod(functools.update_wrapper(apply, bind(original, None, torch.autograd.Function)))


PLUGIN = Plugin("autograd functions", _install, tier=1)
