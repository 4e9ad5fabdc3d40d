"""Does a module's backward hook keep the types of the gradients it sees? Its author says so, and it is watched.

A full backward hook may return other gradients than it was given, on this rank alone; nothing in its signature tells.
So somebody has to vouch for it. While it runs its gradients have the duals of the module's inputs and outputs.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.autograd.function_declarations import MARK
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.fixes.declarations import registered_before

from ..gradients.gradient_hooks import accepted, checked_call, is_torchs, running_pass, telling
from ..gradients.gradient_types import dual
from ..state.session import CheckSession
from .function_backward import types_of

_TYPES = "_shardwise_types_of_"


def check_hooks(session: CheckSession, module: object, hooks: Iterable[object]) -> None:
    """Report the hooks of ``module`` that nobody has vouched for. Errors: SW303.

    What only looks at gradients, and returns none, has to be vouched for in a strict check.
    """
    for hook in hooks:
        if getattr(hook, MARK, False) or is_torchs(hook) or not (session.strict or _may_return(hook)):
            continue
        name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
        module_name = type(module).__name__
        said = Diagnosis(
            "SW303",
            f"the backward hook {name} of {module_name} is not registered: it may return gradients of another type",
            help=(f"register_local_backward_hook({name}) if it neither communicates nor looks at ranks",),
        )
        located = LocatedCall(module_name, [])
        fixes = registered_before(located.location, hook, said.help[0])
        report(session, located, replace(said, fixes=fixes), operands=())


def _may_return(hook: object) -> bool:
    """False for a Python function that has no ``return`` with a value."""
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    if code is None:
        return True
    before = None
    for one in dis.get_instructions(code):
        if one.opname.startswith("RETURN_") and one.opname != "RETURN_GENERATOR":
            returned = one if one.opname == "RETURN_CONST" else before
            if returned is None or not returned.opname.endswith("CONST") or returned.argval is not None:
                return True
        before = one
    return False


def follow(backward_hook: Any) -> None:
    """Have the user's hooks in ``backward_hook`` (a ``torch.utils.hooks.BackwardHook``) checked when they run."""
    backward_hook.user_hooks = [
        hook if is_torchs(hook) else _typed(backward_hook, hook, ("inputs", "outputs"))
        for hook in backward_hook.user_hooks
    ]
    backward_hook.user_pre_hooks = [
        hook if is_torchs(hook) else _typed(backward_hook, hook, ("outputs",)) for hook in backward_hook.user_pre_hooks
    ]


def noting(side: str, plain: Callable[..., object]) -> Callable[..., object]:
    """``BackwardHook.setup_input_hook`` or ``setup_output_hook``, which notes the types of what passes through."""

    @functools.wraps(plain)
    def setup(self: object, args: object) -> object:
        setattr(self, _TYPES + side, types_of(args if isinstance(args, tuple) else (args,)))
        return plain(self, args)

    return setup


def _typed(backward_hook: object, hook: Callable[..., object], sides: tuple[str, ...]) -> Callable[..., object]:
    """``hook``, checked; it returns gradients of the first of ``sides`` and gets those of all of them."""

    @functools.wraps(hook)
    def typed(module: torch.nn.Module, *groups: Any) -> object:
        running = running_pass()
        owns = [getattr(backward_hook, _TYPES + side, None) for side in sides]
        if running is None or any(
            own is None or len(own) != len(group) for own, group in zip(owns, groups, strict=True)
        ):
            return hook(module, *groups)
        session = running[0]
        gradients = [gradient for group in groups for gradient in group]
        types = [dual(type, running[1].scale) for own in owns for type in own or ()]
        result, found = checked_call(session, lambda: hook(module, *groups), gradients, types)
        for own, gradient in zip(owns[0] or (), result if isinstance(result, tuple) else (), strict=False):
            if gradient is not None:
                with telling(session):
                    accepted(session, hook, own, dual(own), found(gradient), discharges=False)
        return result

    return typed
