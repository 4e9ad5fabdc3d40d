"""The table of what is said of refused calls: every code that propagation can give has its words."""

from __future__ import annotations

import ast
import inspect

from shardwise.checker.diagnosis.reporter import TABLE
from shardwise.diagnostics.codes import CODES

from ..source_trees import MODULES, READ_TOGETHER, nodes

pytestmark = READ_TOGETHER


def refused_codes():
    """The codes of all refusals that the package makes, read from its source."""
    codes = set()
    for module, path in MODULES.items():
        for node in nodes(path.read_text()):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refusal":
                codes |= {one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)}
            by_fate = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_CODES"
            if by_fate and module.endswith("propagation.sharded"):
                codes |= {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    return codes


def test_every_refusal_has_its_words_and_no_words_are_left_over():
    made = {code for code in refused_codes() if code in CODES}
    assert len(made) > 15
    assert made == set(TABLE)


def test_a_function_of_the_table_says_the_code_under_which_it_stands():
    for code, words in TABLE.items():
        own = {
            one.value
            for one in ast.walk(ast.parse(inspect.getsource(words)))
            if isinstance(one, ast.Constant) and one.value in CODES
        }
        assert own == {code}, words


def calls_of(name):
    """The modules that call ``name``."""
    for module, path in MODULES.items():
        for node in nodes(path.read_text()):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name:
                yield module


def test_a_diagnosis_becomes_a_finding_in_one_way():
    outside = {module for module in calls_of("Finding") if not module.startswith("shardwise.diagnostics.")}
    assert outside == {"shardwise.configuration.policy"}, "of comments that ignore findings, which are no calls"
    assert "shardwise.diagnostics.finding" in set(calls_of("Finding"))
