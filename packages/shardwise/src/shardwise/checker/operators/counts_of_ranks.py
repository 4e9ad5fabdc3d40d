"""Is a tensor multiplied or divided by how many ranks there are? Where its own scale is not known, that is noted.

loss / dist.get_world_size()      the mean of what a rank has, of data that nobody has said how they were dealt out

A wrapper that averages gradients divides by that number itself. The node of the graph that the call makes is marked, so
that whoever reads the graph of a loss finds it (``interop/autograd/own_reductions.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.interop.autograd.own_reductions import BY_RANKS
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.tensor_type import Power, TensorType

from ..call.arguments import Op
from ..state.numbers import TYPED_NUMBERS
from ..state.session import CheckSession

_SIGNS = {"mul": 1, "div": -1}


def power_of_ranks(session: CheckSession, op: Op, operands: Sequence[Bound]) -> Power:
    """By which power of the number of ranks the call multiplies, along an axis over which gradients are averaged."""
    sign = _SIGNS.get(op.rule.op, 0)
    if not sign or not operands or operands[0].number is not None:
        return 0
    numbers = [one.type for one in operands[1:] if one.number.__class__ in TYPED_NUMBERS]
    powers = [type.exponent(axis) for type in numbers if isinstance(type, TensorType) for axis in session.averaged]
    return next((sign * power for power in powers if power), 0)


def mark(result: object, power: Power) -> None:
    """``result`` has been multiplied by this power of the number of ranks."""
    if isinstance(result, torch.Tensor) and result.grad_fn is not None:
        metadata: Any = result.grad_fn.metadata
        metadata[BY_RANKS] = power
