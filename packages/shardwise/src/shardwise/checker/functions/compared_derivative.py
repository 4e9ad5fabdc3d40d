"""The backward of the program's autograd functions against their own forward, once for each kind of call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from shardwise.interop.autograd.forward_args import bind_forward_args, named_tensors
from shardwise.interop.autograd.function_declarations import is_straight_through
from shardwise.interop.calls.located_call import LocatedCall, describe_value, report
from shardwise.oracle.derivative import wrong_derivative_of
from shardwise.oracle.function_runs import FunctionRuns, NotRun

from ..diagnosis.function_findings import backward_line, shown_function, wrong_derivative
from ..state.session import CheckSession
from .examination import examined
from .probed_functions import call_key


def compare_derivative(session: CheckSession, cls: type[torch.autograd.Function], args: Sequence[object]) -> None:
    """Report SW310 where backward is not the derivative of forward at ``args``."""
    key = ("derivative", call_key(cls, args))
    if key in session.probed or is_straight_through(cls) or cls.__module__.split(".")[0] == "torch":
        return
    floats = [x for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if dist.group.WORLD is None or torch.compiler.is_compiling() or not any(x.requires_grad for x in floats):
        return
    session.probed[key] = None
    with examined(session):
        try:
            runs = FunctionRuns(cls, args, cls.apply, dist.get_rank())
            runs.differentiated = [at for at, x in enumerate(args) if isinstance(x, torch.Tensor) and x.requires_grad]
            found = wrong_derivative_of(runs, floats)
        except NotRun:
            return
    if found is None:
        return
    name = runs.argument_names()[runs.operands[found.operand]]
    said = wrong_derivative(cls, name, found.forward, found.backward)
    located = LocatedCall(cls.__name__, named_tensors(bind_forward_args(cls, args)))
    applied = shown_function(cls, ", ".join(map(describe_value, located.values)), located.location)
    located.location = backward_line(cls) or located.location
    report(session, located, said, operands=(applied,))
