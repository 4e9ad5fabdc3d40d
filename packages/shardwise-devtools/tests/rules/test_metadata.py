"""What torch says of its operators: written down as it is, and refuted where the numbers disagree."""

from __future__ import annotations

import inspect

import pytest
import torch
from click.testing import CliRunner

from shardwise.op_rules import derived
from shardwise.op_rules.propagation.dim_labels import Call, Shape, pointwise
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind
from shardwise.oracle.global_types import true_placements
from shardwise.oracle.sharded_types import Fact
from shardwise.types.placement import R
from shardwise.types.placement import Shard as S
from shardwise_devtools.main import main
from shardwise_devtools.rules import command
from shardwise_devtools.rules.metadata import REFUTED


def test_what_is_written_down_is_what_this_torch_says():
    written = torch.__version__.startswith(inspect.getdoc(derived).split()[2])
    if not written:
        pytest.skip(f"derived.py is of another torch than {torch.__version__}: run `make rules` with the pinned one")
    result = CliRunner().invoke(main, ["rules"])
    assert result.exit_code == 0, "torch's metadata or its reading changed: run `make rules`"


def test_a_file_that_is_not_what_torch_says_is_a_finding_and_is_renewed(tmp_path, monkeypatch):
    stale = tmp_path / "derived.py"
    stale.write_text("PARAMETERS = {}\n")
    monkeypatch.setattr(command, "DERIVED", stale)
    result = CliRunner().invoke(main, ["rules"])
    assert result.exit_code == 1
    assert "derived.py is not what torch" in result.stderr
    assert CliRunner().invoke(main, ["rules", "--write"]).exit_code == 0
    assert CliRunner().invoke(main, ["rules"]).exit_code == 0


CALLS = {
    "equal": (lambda a, b: torch.tensor([[float(torch.equal(a, b))]], dtype=a.dtype), 2),
    "max": (lambda a: a.max().reshape(1, 1), 1),
    "min": (lambda a: a.min().reshape(1, 1), 1),
}


@pytest.mark.parametrize("name", REFUTED["pointwise"])
def test_the_numbers_refute_a_tag_that_is_not_believed(name):
    call, operands = CALLS[name]
    values = torch.arange(16.0, dtype=torch.float64).reshape(4, 4)
    placements = (S(0),) * operands
    labelling = pointwise(Call((Shape((4, 4)),) * operands, {}))
    assert labelling.results == labelling.operands[:1], "by its tag the operator would keep the sharded dim"
    facts = true_placements(call, (values,) * operands)
    assert Fact((R,) * operands, (R,)) in facts
    assert Fact(placements, (S(0),)) not in facts


def test_a_tag_that_is_believed_is_how_the_operator_is_labelled():
    labelled = {name: lookup(name) for name in derived.POINTWISE}
    assert [name for name, rule in labelled.items() if rule is None or rule.labels is not pointwise] == []


def test_what_torch_says_draws_numbers_is_random_here():
    rules = {name: lookup(name) or lookup(f"{name}_") for name in derived.SEEDED}
    assert {name: rule and rule.kind for name, rule in rules.items()} == dict.fromkeys(derived.SEEDED, Kind.RANDOM)
