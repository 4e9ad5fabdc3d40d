"""Do all ranks take steps by the same numbers? The learning rate, the largest norm of gradients, the metric that a
scheduler goes by: where parameters are equal and these are not, each rank takes another step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.tagging import type_of

from ..diagnosis.step_findings import setting_differs
from ..state.numbers import TYPED_NUMBERS, plain, type_here
from ..state.session import CheckSession


def shared_setting(
    session: CheckSession,
    call: str,
    setting: str,
    value: object,
    parameters: Iterable[torch.Tensor],
    names: Callable[[Sequence[torch.Tensor]], Sequence[str]],
) -> object:
    """``value``, as a plain number if it is reported: what follows from it is no finding of its own.

    ``call``   the function that takes it.
    ``names``  what the program calls some of ``parameters``.
    Errors: SW617.
    """
    told = type_here(value) if value.__class__ in TYPED_NUMBERS else type_of(value)
    for axis in (*told.varying_axes, *told.partial_axes):
        equal = [parameter for parameter in parameters if type_of(parameter).is_equal(axis)]
        if equal:
            said = setting_differs(call, setting, names(equal), axis)
            report(session, LocatedCall(call.rpartition(".")[2], []), said, axis, operands=())
            value = plain(value)
    return value
