"""Is the table of transitions closed under gradients, and does the refusal of everything else say what to do?"""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest

from shardwise.diagnostics.finding import Diagnosis
from shardwise.op_rules.transitions import (
    ALIASES,
    DEFAULTS,
    ROUTES,
    TRANSITIONS,
    Transition,
    find_transition,
    letter,
    transition,
)
from shardwise.types.placement import I, P, R, S, V

DUAL = {"R": "P", "P": "R", "I": "I", "V": "V", "S": "S"}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "convert", "reinterpret")
PLACEMENTS = (R, I, V, P, S(0))


@pytest.mark.parametrize("row", TRANSITIONS.values(), ids=lambda row: f"{row.op} {row.src} {row.dst}")
def test_the_backward_of_a_row_is_a_row_between_the_dual_types(row: Transition):
    if row.backward is None:
        assert row.reduction in ("max", "min"), "no gradient goes through these, and through them alone"
        return
    backward = TRANSITIONS[row.backward]
    # The gradient arrives at the dual of dst; the second leg of a composition only renames it.
    arrives = DUAL[row.through or row.dst]
    if not (row.is_noop and row.src == row.dst):
        assert (backward.src, backward.dst) == (arrives, DUAL[row.reads])


@pytest.mark.parametrize("row", TRANSITIONS.values(), ids=lambda row: f"{row.op} {row.src} {row.dst}")
def test_a_row_gives_its_law(row: Transition):
    assert row.law
    assert not row.law.endswith(".")


def test_only_reductions_read_their_operand_as_another_placement():
    other = {(row.op, row.src, row.reads) for row in TRANSITIONS.values() if row.reads != row.src}
    assert other == {("all_reduce", "V", "P"), ("reduce_scatter", "V", "P")}


@pytest.mark.parametrize("route", ROUTES.items(), ids=str)
def test_a_route_leads_along_a_row(route: tuple[tuple[str, str], str]):
    (src, dst), op = route
    assert (op, src, dst) in TRANSITIONS


def test_every_pair_has_a_route_but_those_that_claim_equality_or_take_a_sum_apart():
    letters = "RIVSP"
    extrema = {(f"P({kind})", dst) for kind in ("max", "min") for dst in "RIVS"}
    assert {(a, b) for a in letters for b in letters} | extrema == set(ROUTES)


def test_defaults_and_aliases_speak_of_known_ops():
    assert set(ALIASES.values()) <= set(OPS)
    assert set(DEFAULTS) <= {*OPS, *ALIASES}


@pytest.mark.parametrize("op", OPS)
def test_a_call_has_a_rule_or_a_refusal_and_not_both(op: str):
    for src in PLACEMENTS:
        for dst in PLACEMENTS:
            found = transition(op, src, dst, expert_mode=True)
            assert found is (find_transition(op, src, dst) or found)
            if isinstance(found, Diagnosis):
                refused = found
                assert find_transition(op, src, dst) is None
                assert refused.code == "SW202"
                assert refused.message.startswith((op, "src ", "dst "))
                assert "{" not in refused.message + "".join(refused.help)


def call_in(line: str) -> tuple[str, dict[str, Any]] | None:
    """The call of one of our ops that a line of help starts with: its name and its keyword arguments."""
    for end in range(len(line), 0, -1):
        try:
            tree = ast.parse(line[:end], mode="eval").body
        except SyntaxError:
            continue
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in OPS:
            names = {"R": R, "I": I, "V": V, "P": P, "S": S}
            given = {str(word.arg): eval(ast.unparse(word.value), names) for word in tree.keywords}
            return tree.func.id, {**DEFAULTS[tree.func.id], **given}
    return None


def test_a_remedy_is_a_call_that_is_not_refused_itself():
    tried = 0
    for op in OPS:
        for src in (*PLACEMENTS, None):
            for dst in (*PLACEMENTS, None):
                refused = transition(op, src, dst, axis="tp")
                for line in refused.help if isinstance(refused, Diagnosis) else ():
                    call = call_in(line)
                    if call is not None:
                        name, given = call
                        assert isinstance(transition(name, given["src"], given["dst"]), Transition), line
                        tried += 1
    assert tried > 40


@pytest.mark.parametrize(
    ("placement", "expected"), [(R, "R"), (I, "I"), (V, "V"), (P, "P"), (S(3), "S"), ("R", ""), (None, ""), ([], "")]
)
def test_the_letter_of_a_placement(placement: object, expected: str):
    assert letter(placement) == expected


def test_an_alias_is_looked_up_as_what_it_stands_for():
    assert find_transition("shard", I, S(0)) is find_transition("convert", I, S(1))


@pytest.mark.processes
def test_the_tables_load_without_torch():
    code = "import sys, shardwise.op_rules.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
