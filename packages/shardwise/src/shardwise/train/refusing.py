"""How does the step say that something is wrong? To the running check as a finding, and as an error if none runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.autograd.parameter_names import listed, names_of
from shardwise.interop.calls.located_call import LocatedCall, gradients_as_operands, report
from shardwise.interop.running.session import current


def refuse(
    op: str, axis: object, said: Diagnosis, *, parameters: Sequence[torch.Tensor] = (), names: Sequence[str] = ()
) -> None:
    """Report it; returns only if a check collects findings."""
    session = current()
    if session is None:
        raise SpmdTypeError(said.message, code=said.code, help=said.help)
    operands = gradients_as_operands(parameters, names, axis)
    report(session, LocatedCall(op, []), said, axis, operands=operands)


def gradients(names: Sequence[str]) -> str:
    """``the gradient of a`` or ``the gradients of a, b``."""
    return f"the gradient of {names[0]}" if len(names) == 1 else f"the gradients of {listed(names)}"


__all__ = ["gradients", "listed", "names_of", "refuse"]
