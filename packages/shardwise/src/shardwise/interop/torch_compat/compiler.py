"""``torch.compile``: what is constant for it, and what it loads late."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from .registry import private

Function = TypeVar("Function", bound=Callable[..., Any])


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
