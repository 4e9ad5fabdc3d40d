"""``shardwise einsum``: what it prints and what it exits with."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["einsum", *words])
    return result.exit_code, result.output


def test_a_row_parallel_linear_leaves_a_pending_sum() -> None:
    code, text = run("bi,io->bo", "i@tp", "S(i)@tp")
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["result", "bo", "P"] in [line[:3] for line in lines]
    assert ["gradient", "of", "operand", "1", "bi", "S(i)"] in [line[:6] for line in lines]


def test_a_number_has_no_dim_to_cut_and_is_an_operand_as_any_other() -> None:
    code, text = run(",i->i", "R@dp", "i@dp")
    assert code == 0
    assert re.search(r"result +i +S\(i\) ", text)
    assert re.search(r"gradient of operand 1 +P ", text)
    code, text = run(",i->i", "P@dp", "i@dp")
    assert code == 1
    assert "SW110" in text


def test_every_axis_has_its_own_verdict() -> None:
    code, text = run("sbi,io->sbo", "s@dp R@tp", "o@tp")
    assert code == 0
    assert [line for line in text.splitlines() if line.startswith("axis")] == ["axis dp", "axis tp"]


def test_an_illegal_sharding_exits_1_and_names_the_way_out() -> None:
    code, text = run("bi,io->bo", "i@tp")
    assert code == 1
    assert "illegal (SW402): operand 2 has the whole of i" in text
    assert "legal after: convert operand 2 R -> S(i): result P" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bi,io->bo", "x@tp"), "operand 1 has no label 'x', in 'x@tp': expected one of b, i"),
        (("bi,io->bo", "b@"), "'b@' is not a placement"),
        (
            ("bi,io->bo", "b@dp", "o"),
            "R@axis, I@axis or P@axis; leave out a label that no axis cuts",
        ),
        (("bi,io->bo", "b@dp", "i@dp", "o@dp"), "'o@dp', and the equation has 2, 'bi,io': say one text for"),
        (("bi,io->bo", "b@dp i@dp"), "placed twice on dp, in 'b@dp i@dp': say one placement per axis"),
        (("bi,io->bo",), "nothing is placed"),
        (("b->->i", "b@dp"), "needs exactly one '->'"),
        (("bi,io->bx", "b@dp"), "label 'x' of the result of 'bi,io->bx' is on no operand"),
        (("b.i->b", "b@dp"), "not an einsum equation"),
        (("->", "b@dp"), "no operand of '->' has letters"),
        (("->b", "b@dp"), "label 'b' of the result of '->b' is on no operand"),
        ((",->", "R@dp", "P@dp"), "no operand of ',->' has letters"),
        (("bi,io->bo", "--axis"), "No such option '--axis'"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_word(words: tuple[str, ...], said: str) -> None:
    code, text = run(*words)
    assert code == 2
    assert said in text
