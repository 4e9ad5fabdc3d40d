"""What torch compiles: what is constant for it, what it loads late, and functions in its own language."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .registry import patch_point, private

Function = TypeVar("Function", bound=Callable[..., Any])

SCRIPTED_METHOD = patch_point(
    "torch._C.ScriptMethod.__call__",
    purpose="runs a method of a scripted or traced module, in which no function mode sees a thing",
    lost="the types of what scripted and traced modules compute",
    tier=2,
)

COMPILING_CALLBACK = patch_point(
    "torch._dynamo.eval_frame._callback_from_stance",
    purpose="decides for each call of a compiled function whether it is compiled; ``torch.compiler.set_stance`` decides"
    " it for all threads",
    lost="the types of what compiled functions compute",
    tier=2,
)


@private(
    "torch._dynamo.eval_frame.set_fullgraph_compiled_frame_count",
    lost="calls, inside a check, of functions that are compiled with fullgraph=True",
    tier=2,
)
def expect_no_graph() -> None:
    """Take back that this call of a compiled function must compile something, as ``fullgraph=True`` demands."""
    count = getattr(sys.modules["torch._dynamo.eval_frame"], "set_fullgraph_compiled_frame_count", None)
    if count is not None:
        count(-1)


@private(
    "torch.jit._script.script",
    "torch.jit._trace.trace",
    lost="the types of what scripted and traced functions compute",
    tier=2,
)
def function_scripted(scripted: object) -> Callable[..., object] | None:
    """The Python function that a scripted or traced one was made of, which torch leaves on it for Dynamo."""
    return getattr(scripted, "_torchdynamo_inline", None)


@private(
    "torch._dynamo",
    lost="collectives under torch.compile",
)
def constant_when_compiled(function: Function) -> Function:
    """What ``torch.compiler.assume_constant_result`` does, without importing all of Dynamo (and DTensor with it), which
    would take longer than most checks."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@private(
    "torch._dynamo",
    lost="the quick start of many ranks",
)
def preload() -> None:
    """Load what torch loads at its first optimizer step, so that processes forked from this one share it."""
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch.distributed.tensor")
