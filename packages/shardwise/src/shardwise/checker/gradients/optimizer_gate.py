"""May these gradients enter the optimizer? Only if every sum that a parameter owes has been made.

A gradient that is still a pending sum lets every rank step with its own addend: the replicas drift apart. The gate
stands in front of every ``torch.optim.Optimizer.step``, behind the hooks that the program has put there itself. With a
closure backward runs inside the step, so the operators of the step are all that is judged.
Source: docs/semantics.md section 6, Law 6.2.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shardwise.interop.autograd.gradients import gradient_of, undischarged, varying, waive
from shardwise.interop.autograd.parameter_names import names_of
from shardwise.interop.calls.located_call import LocatedCall, gradients_as_operands, report
from shardwise.interop.tensors.tagging import type_of

from ..diagnosis.gradient_findings import gradient_not_summed
from ..state.session import CheckSession

FindSession = Callable[[], CheckSession | None]


def stand(find: FindSession) -> Callable[[], None]:
    """Put the gate in front of all optimizers; gives what takes it away again."""
    handles: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def gate(optimizer: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        session = find()
        if session is not None and not any(value is not None for value in (*args[1:], kwargs.get("closure"))):
            check_step(session, optimizer)

    def behind_own_hooks(optimizer: Any, args: object, kwargs: object) -> None:
        if optimizer in handles:
            handles[optimizer].remove()
        handles[optimizer] = optimizer.register_step_pre_hook(gate)

    first = register_optimizer_step_pre_hook(behind_own_hooks)

    def leave() -> None:
        first.remove()
        for handle in handles.values():
            handle.remove()

    return leave


def check_step(session: CheckSession, optimizer: torch.optim.Optimizer) -> None:
    """Report the gradients that are not summed, all along one axis as one finding. Errors: SW608."""
    owing: dict[tuple[Any, bool], list[torch.Tensor]] = {}
    names: dict[int, str] = {}
    for group in optimizer.param_groups:
        for parameter, name in zip(group["params"], group.get("param_names") or group["params"], strict=True):
            if isinstance(name, str):
                names[id(parameter)] = name
            if gradient_of(parameter) is not None:
                for axis in undischarged(parameter):
                    owing.setdefault((axis, True), []).append(parameter)
                for axis in varying(parameter):
                    owing.setdefault((axis, False), []).append(parameter)
    typed = any(type_of(parameter).axes for group in optimizer.param_groups for parameter in group["params"])
    session.checked += typed
    try:
        for (axis, pending), parameters in sorted(owing.items(), key=lambda item: item[0][0].sort_key):
            _refuse(session, optimizer, axis, parameters, names, pending)
    finally:
        for parameter in (parameter for parameters in owing.values() for parameter in parameters):
            waive(parameter)


def _refuse(
    session: CheckSession,
    optimizer: torch.optim.Optimizer,
    axis: object,
    parameters: Sequence[torch.Tensor],
    known: Mapping[int, str],
    pending: bool,
) -> None:
    """``pending``: the gradients are addends; otherwise they vary, though the parameters do not."""
    names = [known.get(id(p), name) for p, name in zip(parameters, names_of(parameters), strict=True)]
    said = gradient_not_summed(f"{type(optimizer).__name__}.step", names, axis, pending=pending)
    operands = gradients_as_operands(parameters, names, axis)
    report(session, LocatedCall("step", []), said, axis, operands=operands)
