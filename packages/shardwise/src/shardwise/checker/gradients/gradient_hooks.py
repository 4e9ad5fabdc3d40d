"""What happens in a hook that sees a gradient? Its body is checked, and so is the type of what it returns.

A hook on a tensor gets the gradient before it is used further, one after accumulation may change ``.grad``. PyTorch
runs both in the middle of backward, where no function mode is active; here they get the session's mode back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import GradientOrigin
from shardwise.interop.running.session import current
from shardwise.interop.tensors.own_references import OwnReference
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Keywords, TorchFunction
from shardwise.interop.torch_compat import hook_tables, no_torch_function
from shardwise.types.placement import UNKNOWN, Placement
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Exponent, Ground, TensorType

from ..diagnosis.gradient_findings import not_dual, rescaled
from ..state.session import CheckSession
from .gradient_types import arrive, dual, is_gradient_of

_TYPED = "__shardwise_typed_hook__"


@contextlib.contextmanager
def telling(session: CheckSession, judged: frozenset[str] | None = None) -> Iterator[None]:
    """Findings of the block are told, though autograd is running a backward pass; only those ``judged``, if given."""
    before = session.in_typed_code, session.judged
    session.in_typed_code, session.judged = True, judged
    try:
        yield
    finally:
        session.in_typed_code, session.judged = before


@contextlib.contextmanager
def typed_code(session: CheckSession, judged: frozenset[str] | None = None) -> Iterator[None]:
    """Check the block like any other code, though autograd is running a backward pass."""
    with telling(session, judged), session.mode:
        yield


def register(session: CheckSession, func: TorchFunction, args: Sequence[Any], kwargs: Keywords) -> object:
    """``x.register_hook(hook)``, ``x.register_post_accumulate_grad_hook(hook)``: the hook is checked when it runs."""
    given = dict(zip(("self", "hook"), args, strict=False)) | dict(kwargs)
    wrap = _on_tensor if func is torch.Tensor.register_hook else _after_accumulation
    return func(given["self"], wrap(given["self"], given["hook"]))


def adopt(variables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Check the hooks that leaves got before the check began; gives the leaves that torch's own hooks work on."""
    foreign = []
    for variable in variables:
        with no_torch_function():
            tables = hook_tables(variable)
        for table, wrap in zip(tables, (_on_tensor, _after_accumulation), strict=True):
            for key, hook in list(table.items()):
                if is_torchs(hook):
                    foreign.append(variable)
                elif not hasattr(hook, _TYPED):
                    table[key] = wrap(variable, hook)
    return foreign


def is_torchs(hook: object) -> bool:
    hook = getattr(hook, "func", hook)
    return str(getattr(hook, "__module__", "")).startswith("torch.")


def running_pass() -> tuple[CheckSession, Any] | None:
    """The session and its running backward pass; None if this thread does not check now."""
    session = current()
    return (session, session.passes[-1]) if isinstance(session, CheckSession) and session.passes else None


def _on_tensor(x: torch.Tensor, hook: Callable[..., object]) -> Callable[..., object]:
    tensor = OwnReference(x)

    @functools.wraps(hook)
    def typed(gradient: object) -> object:
        running, x = running_pass(), tensor()
        if running is None or x is None or not isinstance(gradient, torch.Tensor):
            return hook(gradient)
        session, this = running
        expected = this.returned.get(id(x), dual(type_of(x), this.scale))
        result, found = checked_call(session, lambda: hook(gradient), [gradient], [expected], [x])
        returned = gradient if result is None else result
        with telling(session):
            type = accepted(session, hook, type_of(x), expected, found(returned), discharges=x.is_leaf)
        this.returned[id(x)] = type
        if id(x) in this.arrivals:
            this.arrivals[id(x)].contribution = type
        return result

    setattr(typed, _TYPED, True)
    return typed


def _after_accumulation(x: torch.Tensor, hook: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(hook)
    def typed(variable: torch.Tensor) -> object:
        running = running_pass()
        if running is None:
            return hook(variable)
        session, this = running
        if id(variable) in this.arrivals:
            arrive(this.arrivals[id(variable)])
        with typed_code(session):
            return hook(variable)

    setattr(typed, _TYPED, True)
    return typed


def after_node(x: torch.Tensor, hook: Callable[..., object]) -> Callable[..., object]:
    """``hook`` on the node of the graph that accumulates the gradient of ``x``, which has its type by then."""

    @functools.wraps(hook)
    def typed(*gradients: object) -> object:
        running = running_pass()
        if running is None:
            return hook(*gradients)
        session, this = running
        if id(x) in this.arrivals:
            arrive(this.arrivals[id(x)])
        with typed_code(session):
            return hook(*gradients)

    return typed


def checked_call(
    session: CheckSession,
    call: Callable[[], object],
    gradients: Sequence[object],
    types: Sequence[TensorType],
    owners: Sequence[Any] = (),
    judged: frozenset[str] | None = None,
) -> tuple[object, Callable[[object], TensorType]]:
    """Run ``call`` with ``gradients`` typed as ``types``; gives its result, and what tells the type of a gradient.

    The tensors may be seen by others, for whom they are gradients of something else: they get their own tags back.
    """
    tensors = [gradient for gradient in gradients if isinstance(gradient, torch.Tensor)]
    before = [tag_of(tensor) for tensor in tensors]
    for position, gradient in enumerate(gradients):
        if isinstance(gradient, torch.Tensor):
            owner = owners[position] if position < len(owners) else None
            origin = None if owner is None else GradientOrigin(user_site(), owner)
            set_tag(gradient, Tag(types[position], origin))
    try:
        with typed_code(session, judged):
            result = call()
        left = {id(tensor): type_of(tensor) for tensor in tensors}
    finally:
        for tensor, tag in zip(tensors, before, strict=True):
            set_tag(tensor, tag)
    return result, lambda tensor: left.get(id(tensor), type_of(tensor))


def _is_rescaled(before: Exponent, after: Exponent) -> bool:
    return before is not None and after is not None and before != after


def accepted(
    session: CheckSession, hook: object, own: TensorType, expected: TensorType, found: TensorType, *, discharges: bool
) -> TensorType:
    """The type of the gradient that ``hook`` has left for a tensor of type ``own``; SW606 where it is none of it.

    ``discharges``  the hook may make the pending sum that would be owed after backward, as one on a parameter may.
    """
    if found.ground.is_constant or expected.ground is not Ground.ABSENT:
        return expected
    if found is UNTYPED or found.ground is not Ground.ABSENT:
        return UNKNOWN_TYPE
    places: dict[Any, Placement] = {}
    for axis in expected.axes:
        want, got = expected.get(axis), found.get(axis)
        places[axis] = want
        if got is None or got.is_unknown:
            places[axis] = UNKNOWN
        elif discharges and want.is_pending_sum("a gradient hook") and got.is_equal:
            places[axis] = got
        elif not is_gradient_of(want, got):
            not_dual(session, hook, axis, own.get(axis), want, got)
            places[axis] = UNKNOWN
        if not discharges and _is_rescaled(expected.exponent(axis), found.exponent(axis)):
            rescaled(session, hook, axis, (found.exponent(axis) or 0) - (expected.exponent(axis) or 0))
    return expected.with_placements(places).rescaled({axis: found.exponent(axis) for axis in expected.axes})
