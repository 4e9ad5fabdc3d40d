"""How does the step say that something is wrong? To the running check as a finding, and as an error if none runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.interop.located_call import gradients_as_operands, tell
from shardwise.interop.parameter_names import listed, names_of
from shardwise.interop.session import current
from shardwise.types.errors import SpmdTypeError


def refuse(
    code: str,
    op: str,
    axis: Any,
    message: str,
    *,
    parameters: Sequence[torch.Tensor] = (),
    names: Sequence[str] = (),
    facts: Sequence[str] = (),
    help: Sequence[str] = (),
) -> None:
    """Report it; returns only if a check collects findings."""
    session = current()
    if session is None:
        raise SpmdTypeError(message, code=code, help=tuple(help))
    operands = gradients_as_operands(parameters, names, axis)
    tell(session, code, op, axis, message, operands=operands, facts=facts, help=help)


def gradients(names: Sequence[str]) -> str:
    """``the gradient of a`` or ``the gradients of a, b``."""
    return f"the gradient of {names[0]}" if len(names) == 1 else f"the gradients of {listed(names)}"


__all__ = ["gradients", "listed", "names_of", "refuse"]
