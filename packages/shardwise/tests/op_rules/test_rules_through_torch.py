"""The checker sees real calls as the registry means them: the same cases, the operands typed, the result's type read.

A rule whose parameters do not bind as torch's arguments do shows here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.torch_compat import fake_world
from shardwise.op_rules.propagation.local import Refusal, Weak, local_rules
from shardwise.types.placement import I, R

from .all_cases import CASES, Placements, combinations
from .cases import Case

OTHERWISE = {
    "rdiv": "spelled by the operator, which is refused as div",
    "values": "made sparse first, which is refused",
    "set_": "gives a tensor other memory, and is seen as that",
    "broadcast_tensors": "a result that is the operand itself keeps the operand's type",
}
"""Cases whose call does more than their operator."""


@pytest.fixture(scope="module")
def tp() -> Iterator[str]:
    with fake_world(0, 2), spmd.set_current_mesh(init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))):
        yield "tp"


def seen(case: Case, values: tuple[torch.Tensor, ...], placements: Placements) -> Any:
    """The placement that the checker gives the result, or the code of its refusal; None if the result has no type."""
    operands = []
    for value, place in zip(values, placements, strict=True):
        operand = value.detach().clone()
        if case.differentiable and (operand.is_floating_point() or operand.is_complex()):
            operand.requires_grad_()
        operands.append(spmd.assert_type(operand, {"tp": place}))
    try:
        with typecheck():
            result = case.call(*operands)
    except SpmdTypeError as error:
        return error.code
    while isinstance(result, (list, tuple)):
        result = result[0]
    return spmd.maybe_get_axis_local_type(result, "tp")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", [case for case in CASES if case.op not in OTHERWISE], ids=str)
def test_a_real_call_gets_the_type_that_its_rule_says(case: Case, tp: str):
    values = case.values(1)
    for placements in combinations(values):
        if I in placements and len(set(placements)) > 1:
            continue  # whether these mix depends on gradients; see the checker's own tests
        operands = case.operands(values, placements)
        if case.kwargs.get("beta") == 0:
            operands = operands[1:]  # torch does not read what it multiplies by beta=0, so it is no operand
        claims = local_rules(case.rule, operands, blocked=case.blocked(placements))
        claim = claims if isinstance(claims, Refusal) else claims[0]
        found = seen(case, values, placements)
        if isinstance(claim, Refusal):
            assert found == claim.code, placements
        elif isinstance(claim, Weak):
            assert found in (None, R), placements
        elif found == "SW120":  # a write that the rule allows, into a destination that takes part in autograd
            assert case.op == "setitem", placements
        else:
            assert found is claim, placements
