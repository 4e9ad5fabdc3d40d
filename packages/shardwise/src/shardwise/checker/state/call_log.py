"""One log line per checked call, when tracing is on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.tracing import log_call
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import sizes_of, type_of
from shardwise.types.notation import TypedShape
from shardwise.types.tensor_type import UNTYPED


def typed_shape(value: torch.Tensor) -> TypedShape:
    """The full typed shape of a tensor."""
    return TypedShape(str(value.dtype).removeprefix("torch."), sizes_of(value), type_of(value))


def log_result(op: str, operands: Sequence[object], result: object) -> None:
    """Log ``op`` with the types its operands had (``TypedShape``s) and those of its result."""
    first = next(iter(tensors_in(result)), None)
    shown = None if first is None else typed_shape(first)
    if shown is not None and shown.type is UNTYPED and not operands:
        return
    log_call(user_site(1), op, operands, shown)
