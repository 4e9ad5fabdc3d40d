"""The table in checker/README.md of where to change what is true: its paths are there, and what they hold does it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import shardwise
from shardwise.checker.diagnosis import operand_refusals, reporter
from shardwise.checker.patching import fsdp
from shardwise.op_rules.operators import elementwise
from shardwise.op_rules.registry import lookup

PACKAGE = Path(shardwise.__file__).parent
CHECKER = PACKAGE / "checker"
ROWS = [
    line.split("|")[1:3]
    for line in (CHECKER / "README.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and "---" not in line and "go to" not in line
]


def files(place: str) -> list[Path]:
    """Where the table's file or folder ``place`` may be."""
    return [found for folder in (CHECKER, PACKAGE) if (found := folder / place).exists()]


def code_of(row: str) -> str:
    """The source of everything that a row names."""
    named = [path for place in re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?|[a-z_]+\.py)`", row) for path in files(place)]
    sources = [one for path in named for one in (path.rglob("*.py") if path.is_dir() else [path])]
    return "\n".join(path.read_text("utf-8") for path in sources)


def test_the_table_has_the_questions_that_a_newcomer_asks():
    asked = "activation", "collective", "message of a code", "FSDP gathers", "not checked"
    assert [question for question in asked if not any(question in subject for subject, _ in ROWS)] == []


@pytest.mark.parametrize(("subject", "places"), ROWS, ids=[subject.strip() for subject, _ in ROWS])
def test_what_a_row_names_is_there(subject, places):
    named = re.findall(r"`([^`]+)`", places)
    paths = [name for name in named if "/" in name or name.endswith(".py")]
    assert paths
    code = code_of(places)
    missing = [path for path in paths if "/" in path and not files(path)]
    names = [name for name in named if name not in paths and name.rpartition(".")[2] not in code]
    assert missing == []
    assert [name for name in names if not any(CHECKER.rglob(f"{name}.py")) and name not in OUTSIDE] == []


OUTSIDE = {"torch.distributed"}
"""What the table names and does not have in this repository."""


def test_an_activation_has_its_rule_by_its_tag_or_an_entry():
    assert {"relu", "gelu", "silu"} <= {rule.op for rule in elementwise.tagged(())}
    assert "prelu" in {rule.op for rule in elementwise.RULES}
    assert lookup("gelu") is not None


def test_a_refused_code_is_said_by_the_function_of_the_table():
    assert reporter.TABLE["SW113"] is operand_refusals.term_added_per_rank


def test_a_gathered_parameter_gets_its_type_where_the_table_says():
    assert "init_unsharded_param" in Path(fsdp.__file__).read_text("utf-8")
