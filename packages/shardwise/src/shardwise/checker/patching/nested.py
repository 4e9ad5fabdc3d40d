"""Nested tensors: their makers show function modes nothing, or what they put together on the way.

The pieces have lengths of their own, of which no type speaks, so a maker is an operator without a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from shardwise.interop.calls.boundary import outermost
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import type_of

from ..dispatch import no_rule
from ..state.session import CheckSession
from .patches import Patches, Plugin, checking_session

Call = Callable[..., object]

MAKERS = ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged", "narrow", "masked_select")


def _install(patches: Patches) -> None:
    for name in MAKERS:
        patches.replace_attribute(torch.nested, name, functools.partial(_checked, OpName((name,))))


def _checked(name: OpName, plain: Call) -> Call:
    handler = no_rule(name)

    @outermost
    @functools.wraps(plain)
    def make(*args: object, **kwargs: object) -> object:
        session = checking_session()
        types = map(type_of, tensors_in((*args, *kwargs.values())))
        if session is None or session.paused or not any(type.axes and not type.ground.is_constant for type in types):
            return plain(*args, **kwargs)
        return handler(session, functools.partial(_run, session, plain), args, kwargs)

    return make


def _run(session: CheckSession, plain: Call, *args: object, **kwargs: object) -> object:
    with paused(session):
        return plain(*args, **kwargs)


PLUGIN = Plugin("makers of nested tensors", _install)
