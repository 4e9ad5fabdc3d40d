"""Which arguments does ``forward`` of an ``autograd.Function`` take, and which tensors do they hold?"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, shown

from ..torch_compat import tree_leaves


def forward_parameters(cls: type) -> list[inspect.Parameter]:
    """The parameters of forward, ctx left out."""
    if not (isinstance(cls, type) and issubclass(cls, torch.autograd.Function)):
        raise SpmdArgumentError(f"expected an autograd.Function class, got {shown(cls)}", code="SW304")
    parameters = list(inspect.signature(cls.forward).parameters.values())
    # With setup_context, forward takes no ctx.
    has_ctx = cls.setup_context is torch.autograd.Function.setup_context
    return parameters[1:] if has_ctx else parameters


def bind_forward_args(
    cls: type, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Forward's arguments by name, ctx left out, defaults filled in; ``*args`` is one tuple.

    Errors: TypeError if forward cannot be called with ``args``.
    Example:
        >>> class Scaled(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, factor=2):
        ...         return x * factor
        >>> bind_forward_args(Scaled, (3,))
        {'x': 3, 'factor': 2}
    """
    parameters = forward_parameters(cls)
    try:
        bound = inspect.Signature(parameters).bind(*args, **kwargs or {})
    except TypeError as error:
        raise SpmdArgumentError(f"{cls.__qualname__}.apply: {error}", code="SW304") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def positional(cls: type, bound: Mapping[str, Any]) -> list[object]:
    """The opposite of ``bind_forward_args``: the arguments as ``apply`` takes them."""
    args: list[Any] = []
    for parameter in forward_parameters(cls):
        if parameter.kind is parameter.VAR_POSITIONAL:
            args += bound[parameter.name]
        elif parameter.kind is not parameter.VAR_KEYWORD:
            args.append(bound[parameter.name])
    return args


def named_tensors(bound: Mapping[str, object]) -> list[tuple[str, torch.Tensor]]:
    """Every tensor that can be reached from these arguments, with how one would write it."""
    return [found for name, value in bound.items() for found in _reachable(name, value)]


def _reachable(path: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _reachable(f"{path}[{index}]", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _reachable(f"{path}[{key!r}]", item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _reachable(f"{path}.{field.name}", getattr(value, field.name, None))
    else:
        leaves = tree_leaves(value)
        if len(leaves) != 1 or leaves[0] is not value:
            yield from ((path, leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
