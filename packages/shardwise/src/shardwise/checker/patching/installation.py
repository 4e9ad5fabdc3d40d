"""Which of PyTorch's functions are wrapped while some thread is checking? Five that its function modes do not show.

``autograd.Function.apply`` runs a user's forward without telling anybody what it is; vmap makes new tensors around its
inputs; a module's backward hooks work through a hidden autograd function; ``nn.Parameter`` makes a new tensor object of
its data; ``cond`` and its like compile what they run. The wrappers are in place as long as any
thread checks, and pass straight through on threads that do not.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.hooks

from shardwise.interop.boundary import finish, outermost
from shardwise.interop.function_declarations import INTERNAL
from shardwise.interop.session import current
from shardwise.interop.tagging import alias, tag_of
from shardwise.interop.torch_compat import (
    function_modes,
    grad_transforms_module,
    higher_order_module,
    in_backward,
    vmap_module,
)
from shardwise.types.errors import SpmdTypeError
from shardwise.types.tensor_type import Ground

from ..collectives import rearranged_dims as rearranging
from ..control_flow import operators as control_flow
from ..control_flow.interpreter import Interpreting
from ..functions import function_backward
from ..functions.autograd_functions import checked_apply
from ..functions.backward_hooks import check_hooks, follow, noting
from ..gradients import backward_pass, optimizer_gate, replicas
from ..mode import CheckMode
from ..state.session import CheckSession
from . import fsdp as sharded_parameters
from . import func_grad as differentiating
from . import masked
from . import vmap as batching

_lock = threading.Lock()
_holders = 0
_watching = False
_undo: list[Callable[[], None]] = []


def acquire() -> None:
    """Put the wrappers in place, if no other thread has."""
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _install()


def release() -> None:
    """Take the wrappers away with the last thread that checks."""
    global _holders
    with _lock:
        _holders -= 1
        if _holders == 0:
            while _undo:
                _undo.pop()()


def _install() -> None:
    _replace(torch.autograd.Function, "apply", _wrap_apply)
    _replace(torch.utils.hooks.BackwardHook, "__init__", _wrap_backward_hook)
    for side in ("input", "output"):
        _replace(torch.utils.hooks.BackwardHook, f"setup_{side}_hook", functools.partial(noting, f"{side}s"))
    _replace(torch.nn.Parameter, "__new__", _wrap_parameter)
    vmap = vmap_module()
    _replace(vmap, "_flat_vmap", _wrap_vmap)
    _replace(vmap, "_create_batched_inputs", _wrap_batching)
    _replace(vmap, "_unwrap_batched", _wrap_unbatching)
    _replace(higher_order_module(), "_hop_compile_and_call", _wrap_compiling)
    transforms = grad_transforms_module()
    _replace(transforms, "_wrap_tensor_for_grad", functools.partial(differentiating.wrap_wrapping, _session))
    _replace(transforms, "_undo_create_differentiable", functools.partial(differentiating.wrap_unwrapping, _session))
    _replace(transforms, "_autograd_grad", functools.partial(differentiating.wrap_derivative, _session))
    _replace(torch.autograd, "_engine_run_backward", backward_pass.wrap_engine)
    _replace(torch.autograd.function.BackwardCFunction, "apply", function_backward.wrap_apply)
    _replace(torch.distributed.ProcessGroup, "allreduce", backward_pass.wrap_allreduce)
    _replace(torch.nn.parallel.DistributedDataParallel, "forward", functools.partial(replicas.wrap_forward, _session))
    rearranging.watch(_replace, _session)
    _undo.append(optimizer_gate.stand(_session))
    _undo.append(masked.redirect(_session))
    _watch_sharded_parameters()


def _watch_sharded_parameters() -> None:
    """FSDP may be loaded later: asked again whenever a parameter is made, until it is there."""
    global _watching
    if not _watching and sharded_parameters.watch(_replace, _session):
        _watching = True
        _undo.append(_stop_watching)


def _stop_watching() -> None:
    global _watching
    _watching = False


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = vars(owner)[name]
    setattr(owner, name, wrap(original))
    _undo.append(functools.partial(setattr, owner, name, original))


def _session() -> CheckSession | None:
    """The check of this thread; None while one of its handlers runs an operator, or autograd a backward pass."""
    session = current()
    if not isinstance(session, CheckSession) or (in_backward() and not session.in_typed_code):
        return None
    seen = any(isinstance(mode, CheckMode) and mode.session is session for mode in function_modes())
    return session if seen else None


def _wrap_apply(original: Any) -> Any:
    plain = original.__func__

    @outermost
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        session = _session()
        if session is None or getattr(cls, INTERNAL, False):
            return plain(cls, *args, **kwargs)
        try:
            return checked_apply(session, cls, args, kwargs, lambda: plain(cls, *args, **kwargs))
        except SpmdTypeError as error:
            finish(error, cls.__name__)
            raise

    return classmethod(functools.update_wrapper(apply, plain))


def _wrap_backward_hook(plain: Any) -> Any:
    @functools.wraps(plain)
    def __init__(self: Any, module: Any, user_hooks: Any, user_pre_hooks: Any) -> None:
        session = _session()
        if session is not None:
            check_hooks(session, module, (*user_hooks, *user_pre_hooks))
        plain(self, module, user_hooks, user_pre_hooks)
        if session is not None:
            follow(self)

    return __init__


def _wrap_parameter(original: Any) -> Any:
    plain = original.__func__

    @functools.wraps(plain)
    def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        _watch_sharded_parameters()
        made = plain(cls, data, requires_grad)
        tag = tag_of(data)
        # A constant is typed for want of anything better; what a parameter made of it is, its owner will say.
        if (
            tag is not None
            and tag_of(made) is None
            and tag.current().ground is Ground.ABSENT
            and _session() is not None
        ):
            alias(made, data, tag.current(), tag.origin)
        return made

    return staticmethod(__new__)


def _wrap_compiling(plain: Any) -> Any:
    """Without Dynamo the operator itself is called, which modes see."""

    @functools.wraps(plain)
    def call(fn: Any, args: Any, kwargs: Any = None) -> Any:
        interpreted = any(isinstance(mode, Interpreting) for mode in function_modes())
        if interpreted or (_session() is not None and control_flow.can_handle(args)):
            return fn(*args, **(kwargs or {}))
        return plain(fn, args, kwargs)

    return call


def _wrap_vmap(plain: Any) -> Any:
    @functools.wraps(plain)
    def run(func: Any, batch_size: Any, in_dims: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        if _session() is None:
            return plain(func, batch_size, in_dims, args, *rest, **kwargs)
        with batching.mapped_over(in_dims, args):
            return plain(func, batch_size, in_dims, args, *rest, **kwargs)

    return run


def _wrap_batching(plain: Any) -> Any:
    @functools.wraps(plain)
    def create(in_dims: Any, args: Any, *rest: Any) -> Any:
        made = plain(in_dims, args, *rest)
        if _session() is not None:
            batching.type_inputs(in_dims, args, made)
        return made

    return create


def _wrap_unbatching(plain: Any) -> Any:
    @functools.wraps(plain)
    def unwrap(outputs: Any, out_dims: Any, *rest: Any) -> Any:
        made = plain(outputs, out_dims, *rest)
        if _session() is not None:
            batching.type_outputs(outputs, out_dims, made)
        return made

    return unwrap
