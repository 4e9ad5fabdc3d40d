"""What the author of an ``autograd.Function`` or of a backward hook declares of it, for a check to believe."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown

from ..running.session import paused, this_thread
from ..tensors.tagging import set_tag, set_type, tag_of
from ..torch_compat import tree_leaves, tree_map, tree_structure

METHOD = "spmd_typecheck"
"""The static method that is a rule of its class."""
FORWARD = "typecheck_forward"
"""The static method that runs the class on typed tensors."""
MARK = "__shardwise_local_hook__"
"""A true attribute of this name marks a backward hook that its author vouches for."""
INTERNAL = "__shardwise_internal__"
"""A true attribute of this name marks our own functions, which collectives and coercions check themselves."""

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])

_local: weakref.WeakSet[type] = weakref.WeakSet()
_typed_forward: weakref.WeakSet[type] = weakref.WeakSet()
_straight_through: weakref.WeakSet[type] = weakref.WeakSet()


def register_local_autograd_function(cls: Class) -> Class:
    """Declare that ``cls`` neither communicates nor looks at ranks: on R it gives R, on V it gives V; P is refused.

    Example:
        >>> @register_local_autograd_function
        ... class Clipped(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x.clamp(-1, 1)
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return grad
        >>> print(typeof(Clipped.apply(assert_type(torch.ones(4), {"tp": V}))))
        f32[4] {dp: R, tp: V}
    """
    _local.add(_function_class(cls, "register_local_autograd_function"))
    return cls


def register_straight_through(cls: Class) -> Class:
    """Declare that the backward of ``cls`` is not the derivative of its forward, on purpose: ``verify`` is silent.

    For straight-through estimators, reversed or clipped gradients, and surrogates of steps.

    Example:
        >>> @register_straight_through
        ... @register_local_autograd_function
        ... class Rounded(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x.round()
        ...     @staticmethod
        ...     def backward(ctx, gradient):
        ...         return gradient
        >>> print(typeof(Rounded.apply(assert_type(torch.ones(4), {"tp": V}))))
        f32[4] {dp: R, tp: V}
    """
    _straight_through.add(_function_class(cls, "register_straight_through"))
    return cls


def register_autograd_function(cls: Class) -> Class:
    """Declare that ``cls`` brings its own typing: either ``typecheck_forward`` or ``spmd_typecheck``.

    Errors: TypeError if it has neither, both, or one that cannot be called.
    Example:
        >>> @register_autograd_function
        ... class Twice(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return 2 * grad
        ...     @staticmethod
        ...     def typecheck_forward(x):
        ...         return assert_type(Twice.apply(x), get_local_type(x))
        >>> print(typeof(Twice.apply(assert_type(torch.ones(4), {"dp": R, "tp": P}))))
        f32[4] {dp: R, tp: P}
    """
    _function_class(cls, "register_autograd_function")
    present = [name for name in (FORWARD, METHOD) if getattr(cls, name, None) is not None]
    if len(present) != 1:
        has = "both" if present else "neither"
        raise SpmdArgumentError(
            f"register_autograd_function needs exactly one of {FORWARD} and {METHOD}, {cls.__qualname__} has {has}",
            code="SW304",
        )
    if not callable(getattr(cls, present[0])):
        raise SpmdArgumentError(
            f"{cls.__qualname__}.{present[0]} must be callable, got {getattr(cls, present[0])!r}", code="SW304"
        )
    if present[0] == FORWARD:
        _typed_forward.add(cls)
    return cls


@overload
def register_decomposition(cls: type, ref_impl: Function) -> Function: ...


@overload
def register_decomposition(cls: type) -> Callable[[Function], Function]: ...


def register_decomposition(cls: type, ref_impl: Callable[..., object] | None = None) -> object:
    """Type ``cls`` by a plain PyTorch function that computes the same: it is checked on tensors without data.

    Returns ``ref_impl``; without it, a decorator.

    Example:
        >>> class Twice(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return 2 * grad
        >>> @register_decomposition(Twice)
        ... def twice(x):
        ...     return 2 * x
        >>> print(typeof(Twice.apply(assert_type(torch.ones(4), {"tp": P}))))
        f32[4] {dp: R, tp: P}
    """
    _function_class(cls, "register_decomposition")
    if ref_impl is None:
        return lambda function: register_decomposition(cls, function)
    if not callable(ref_impl):
        raise SpmdArgumentError(f"register_decomposition takes a function, got {ref_impl!r}", code="SW304")

    def typecheck_forward(*args: object) -> object:
        return _decomposed(cls, ref_impl, args)

    setattr(cls, FORWARD, staticmethod(typecheck_forward))
    _typed_forward.add(cls)
    return ref_impl


def register_local_backward_hook(hook: Function) -> Function:
    """Declare that a module's full backward hook (or pre-hook) changes no gradient's type.

    Errors: TypeError for something that is not a function of its own.
    Example:
        >>> @register_local_backward_hook
        ... def watch(module, grad_input, grad_output):
        ...     print("backward of", type(module).__name__)
        >>> handle = nn.Linear(4, 4).register_full_backward_hook(watch)
    """
    try:
        if callable(hook):
            setattr(getattr(hook, "__func__", hook), MARK, True)
            return hook
    except (AttributeError, TypeError):
        pass  # built in, without room for an attribute
    raise SpmdArgumentError(
        f"register_local_backward_hook takes a function, got {shown(hook)} of type {type(hook).__name__}", code="SW303"
    )


def _function_class(cls: object, caller: str) -> type:
    if not (isinstance(cls, type) and issubclass(cls, torch.autograd.Function)):
        raise SpmdArgumentError(f"{caller} takes a subclass of torch.autograd.Function, got {shown(cls)}", code="SW304")
    return cls


def is_local(cls: type) -> bool:
    """True if ``cls`` is declared to be a local function."""
    return cls in _local


def is_straight_through(cls: type) -> bool:
    """True if the backward of ``cls`` is declared to be no derivative."""
    return cls in _straight_through


def has_typed_forward(cls: type) -> bool:
    """True if ``cls`` is declared to be typed by its ``typecheck_forward``."""
    return cls in _typed_forward


def _decomposed(cls: type, ref_impl: Callable[..., object], args: Sequence[object]) -> object:
    """Check ``ref_impl`` on stand-ins without data, run the real function, copy the types leaf by leaf."""
    session = this_thread()
    if session is None:
        raise SpmdTypeError(f"the decomposition of {cls.__qualname__} needs type checking to be active", code="SW304")
    with paused(session):
        stand_ins = tree_map(_without_data, tuple(args))
    with paused(session, False):
        typed = ref_impl(*stand_ins)
    with paused(session):
        results = cls.apply(*args)  # type: ignore[attr-defined]
    found, expected = tree_structure(results), tree_structure(typed)
    if found != expected:
        raise SpmdTypeError(
            f"the decomposition of {cls.__qualname__} does not give what the function gives\n"
            f"function: {found}\ndecomposition: {expected}",
            code="SW304",
        )
    for real, stand_in in zip(tree_leaves(results), tree_leaves(typed), strict=True):
        if isinstance(real, torch.Tensor) and isinstance(stand_in, torch.Tensor):
            tag = tag_of(stand_in)
            if tag is not None:
                set_type(real, tag.current(), tag.origin)
    return results


def _without_data(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_like(value, device="meta").requires_grad_(value.requires_grad)
    set_tag(made, tag_of(value))
    return made
