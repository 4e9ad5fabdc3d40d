"""The walk-through "Add a rule" of CONTRIBUTING.md, done on an operator that PyTorch does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import handle_torch_function, has_torch_function

import shardwise as spmd
from shardwise.checker import mode
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.op_rules import registry
from shardwise.op_rules.operators import elementwise
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import P

from ..checker.helpers import make, place, refused
from . import linear_cases
from .agreement import assert_agreement
from .cases import Case
from .test_rules_against_oracle import false_claims, unclaimed_truths

ROOT = Path(__file__).resolve().parents[4]
SECTION = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Add a rule")[2].partition("\n## ")[0]
BLOCKS = [block.strip() for block in re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)]


def blend(input: torch.Tensor, other: torch.Tensor, weight: float) -> torch.Tensor:
    if has_torch_function((input, other)):
        return handle_torch_function(blend, (input, other), input, other, weight)
    return weight * input + (1 - weight) * other


blend.__module__ = "torch"


@pytest.fixture(autouse=True)
def torch_with_blend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "blend", blend, raising=False)
    monkeypatch.delitem(mode._handlers, blend, raising=False)


@pytest.fixture
def tp_mesh() -> Iterator[None]:
    with set_current_mesh({"tp": MeshAxis.of(2, 1)}):
        yield


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    """The case of the page, with the rule of the page in the registry."""
    written, tried = BLOCKS
    rule: OpRule = eval(written, vars(elementwise))
    monkeypatch.setattr(registry, "_table", dict(registry._table(), blend=rule).copy)
    found: Any = eval(tried, vars(linear_cases))
    assert isinstance(found, Case)
    return found


def test_the_files_and_tables_of_the_page_exist():
    source, table = re.findall(r"`(packages/[\w/-]+\.py)`", SECTION)
    assert "\nRULES = (" in (ROOT / source).read_text()
    assert "\nELEMENTWISE = [" in (ROOT / table).read_text()


@pytest.mark.usefixtures("tp_mesh")
def test_without_its_rule_the_operator_is_a_finding_that_says_how_to_declare_it():
    with spmd.typecheck(), refused("SW301", 'register_rule("blend", "input other weight")'):
        blend(make("V"), make("V"), 0.5)


@pytest.mark.usefixtures("tp_mesh")
def test_with_its_rule_the_operator_is_typed(case):
    with spmd.typecheck():
        assert place(blend(make("P"), make("P"), 0.5)) == "P"
        with refused("SW113"):
            blend(make("P"), make("R"), 0.5)


def test_the_case_proves_the_rule(case):
    assert false_claims(case) == []
    assert unclaimed_truths(case) == []
    assert case.sharded
    assert_agreement(case.call, case.values(1))


@pytest.mark.parametrize("linear", ["input other", "input"])
def test_the_case_refutes_a_rule_that_claims_too_much(case, linear):
    wrong = replace(case.rule, linear=linear)
    assert any("is not" in claim for claim in false_claims(replace(case, planted=wrong)))


def test_the_case_finds_what_a_rule_does_not_claim(case):
    assert unclaimed_truths(replace(case, planted=replace(case.rule, linear=""))) == [(P, P)]
