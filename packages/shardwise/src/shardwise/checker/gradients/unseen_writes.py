"""What is written in the middle of backward where nothing is checked, by hooks on nodes or functions without a rule.

Whatever was constant is so no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.overrides import TorchFunctionMode

from shardwise.interop.calls.op_names import op_name
from shardwise.interop.tensors.tagging import forget_memory, type_of

from ..state.session import CheckSession


class UnseenWrites(TorchFunctionMode):
    """Forgets the type of a constant that is written into, unless the code is checked."""

    def __init__(self, session: CheckSession) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self.session.in_typed_code:
            out = kwargs.get("out")
            for destination in (out,) if out is not None else args[:1]:
                if _is_constant(destination) and (out is not None or op_name(func).in_place):
                    forget_memory(destination)
        return result


def _is_constant(x: object) -> bool:
    return isinstance(x, torch.Tensor) and type_of(x).ground.is_constant
