"""What tests of hand-written rules share: stand-ins, what the checker opens around a rule, a function with a rule."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function

import shardwise as spmd
from shardwise import I, P, PartitionSpec, R, V, rules
from shardwise.interop.running.typing_rule_run import TypingRuleRun, running

LETTERS = {"R": R, "I": I, "V": V, "P": P}


def stand_in(ndim: int, types: dict[str, Any] | None = None, spec: PartitionSpec | None = None) -> Any:
    """A stand-in of this type."""
    return spmd.assert_type(rules.NdimWithSpmdType(ndim), types or {}, partition_spec=spec)


def in_mode(*, local: bool) -> Any:
    """What the checker opens around a rule."""
    return running(TypingRuleRun("Kernel", (), local=local, strict=True))


def declared(hook: Any, forward: Any = None) -> Any:
    """A function with this rule; its forward multiplies x and w, or is given."""

    def multiply(ctx: Any, x: torch.Tensor, w: torch.Tensor, group: Any = "tp") -> torch.Tensor:
        return x @ w

    body = {"forward": staticmethod(forward or multiply), "spmd_typecheck": staticmethod(hook)}
    return type("Kernel", (Function,), body)
