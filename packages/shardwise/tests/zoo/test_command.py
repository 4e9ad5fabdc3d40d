"""``shardwise zoo`` as a user meets it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from shardwise.cli.zoo import zoo
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.zoo.catalogue import names


def shown(*words: str) -> str:
    done = CliRunner().invoke(zoo, words, standalone_mode=False)
    assert done.exception is None, done.output
    return done.output


def test_the_list_has_every_program_with_its_title() -> None:
    lines = shown().splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert all(len(line.split()) > 4 for line in lines)


def test_a_page_has_words_numbers_and_code() -> None:
    page = shown("tensor_parallel", "--mesh", "dp=1,tp=4")
    assert "On dp=1, tp=4, in float64, a rank" in page
    assert "receives  2,304 bytes a step over tp" in page
    assert "def single(" in page
    assert "def parallel(" in page


def test_its_mesh_is_drawn_for_every_axis() -> None:
    picture = shown("ulysses", "--draw")
    assert picture.count("mesh dp=2, sp=2: 4 ranks") == 2


def test_a_folded_mesh_is_drawn_with_the_axes_that_the_other_lacks() -> None:
    picture = shown("deepseek_v3", "--draw")
    assert picture.count("mesh pp=2, dp=4: 8 ranks") == 2
    assert picture.count("mesh pp=2, edp=2, ep=2: 8 ranks") == 2


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    done = CliRunner().invoke(zoo, ["tensor_paralel"], standalone_mode=False)
    assert isinstance(done.exception, SpmdValueError)
    assert done.exception.help == ("shardwise zoo tensor_parallel",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ulysses", "--mesh", "tp=2"), "the axes of ulysses are dp, sp, e.g. --mesh dp=2,sp=2"),
        (("--run",), "shardwise zoo NAME"),
        (("fsdp", "--mesh", "dp=5", "--run"), "up is f64[16@dp, 12], and 16 is no multiple of 5 ranks"),
    ],
    ids=["other axes", "no name", "pieces of several lengths"],
)
def test_wrong_usage_says_what_is_right(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(zoo, words)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.processes
def test_a_run_prints_both_losses() -> None:
    lines = shown("data_parallel", "--mesh", "dp=2", "--run").splitlines()
    assert lines[1].split()[1] == lines[1].split()[2]
    assert lines[-2].endswith("compared with one device: all equal")
