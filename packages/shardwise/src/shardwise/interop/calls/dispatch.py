"""How does the checker see our own calls? Through PyTorch's function protocol, like any torch function.

A public function decorated with ``typed_call`` costs one C call more than the plain function when nothing watches. When
a ``TorchFunctionMode`` is active or the tensor is a subclass with its own protocol, the call is handed to it; the
checker's mode recognises ``__shardwise_op__``, checks first, and calls the same function again with itself off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, has_torch_function_unary

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError

from .boundary import finish, outermost

Params = ParamSpec("Params")
Result = TypeVar("Result")


def typed_call(op: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Make a function, whose first argument is a tensor, visible to the checker as the op called ``op``."""

    def decorate(function: Callable[Params, Result]) -> Callable[Params, Result]:
        @functools.wraps(function)
        def public(x: Any, *args: Any, **kwargs: Any) -> object:
            if has_torch_function_unary(x):
                return handle_torch_function(public, (x,), x, *args, **kwargs)
            try:
                return function(x, *args, **kwargs)
            except SpmdTypeError as error:
                if not is_compiling():
                    finish(error, op)
                raise
            except AttributeError:
                if isinstance(x, Tensor):
                    raise
                refusal = SpmdArgumentError(f"{op} takes a tensor, got one of type {type(x).__name__}", code="SW905")
                finish(refusal, op)
                raise refusal from None

        public.__shardwise_op__ = op  # type: ignore[attr-defined]
        return cast(Callable[Params, Result], outermost(public))

    return decorate
