import re

import pytest

from shardwise.diagnostics import explain
from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.errors import SpmdTypeError


@pytest.mark.parametrize("query", ["SW112", "sw112", "112", " SW112 ", "partial-sum-in-nonlinear-op"])
def test_a_code_is_found_by_number_and_by_name(query):
    assert explain.find(query).code == "SW112"


@pytest.mark.parametrize(
    ("query", "near"), [("SW11", "SW112"), ("partial-sum-in-nonlinear", "SW112"), ("SW999", "SW90")]
)
def test_an_unknown_code_is_refused_with_its_neighbours(query, near):
    with pytest.raises(SpmdTypeError, match=re.escape(repr(query))) as caught:
        explain.find(query)
    assert caught.value.code == "SW905"
    assert any(near in line for line in caught.value.help)


def test_the_index_lists_every_code():
    lines = explain.index().splitlines()
    assert [line.split()[:2] for line in lines] == [[code.code, code.name] for code in CODES.values()]


def test_a_page_has_its_parts():
    page = explain.page("SW112")
    assert page.sentence.startswith("A pending sum enters an operator that is not linear")
    assert page.fails.endswith("# SW112\n")
    assert "relu(-1) + relu(3)" in page.why
    assert "all_reduce" in page.repaired
    assert page.known_from


def test_programs_stand_inside_the_prelude():
    program = explain.runnable("x = 1\nif x:\n    y = 2  # SW999\n")
    assert "\n    x = 1\n    if x:\n        y = 2  # SW999\n" in program
    assert program.startswith("import torch\n")
    compile(program, "<program>", "exec")


def test_a_program_with_its_own_imports_stands_alone():
    assert explain.runnable("import shardwise\n") == "import shardwise\n"


def test_rendering_is_plain_unless_asked():
    assert explain.render("SW112") == explain.page("SW112").text.rstrip("\n")
    assert "\x1b[" in explain.render("SW112", color=True)
