"""Does ``shardwise mutate`` work as a user would try it?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardwise.cli.main import main
from shardwise.zoo.catalogue import entry

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("mutate")]

PROGRAM = entry("tensor_parallel").path
MESH = ("--mesh", "dp=2,tp=2")
ARGUMENTS = ("--", "--dp", "{dp}", "--tp", "{tp}")


TYPED_MEAN = 'return spmd.mean((y - x.targets).square().sum(-1), "dp", src=S(0), dst=P)'
WITH_A_LITERAL = 'loss = spmd.sum((y - x.targets).square().sum(-1), "dp", src=S(0), dst=P) / B\n    return loss'
"""A count of which nobody knows whether it is one: types cannot tell it from a wrong one."""


@pytest.fixture
def literal(tmp_path: Path) -> Path:
    """The program with a count of unknown origin."""
    text = PROGRAM.read_text()
    assert TYPED_MEAN in text
    (tmp_path / PROGRAM.name).write_text(text.replace(TYPED_MEAN, WITH_A_LITERAL))
    return tmp_path / PROGRAM.name


def mutate(*words: str) -> Result:
    return CliRunner().invoke(main, ["mutate", *words])


def test_mutants_are_listed_without_a_run() -> None:
    result = mutate(str(PROGRAM), *MESH, "--operator", "bias", "--list")
    assert result.exit_code == 0
    assert result.stdout == (
        "tensor_parallel.py:37: bias\n"
        '  - x.tokens + spmd.all_reduce(y, "tp", src=P, dst=I)\n'
        '  + spmd.all_reduce(x.tokens + y, "tp", src=P, dst=I)\n'
    )


@pytest.mark.nightly
def test_a_survivor_is_shown_until_it_is_explained(tmp_path: Path, literal: Path) -> None:
    words = (str(literal), *MESH, "--operator", "denominator", "--operator", "bias")
    result = mutate(*words, *ARGUMENTS)
    assert result.exit_code == 1
    assert result.stdout.startswith("survived: denominator at tensor_parallel.py:37\n")
    assert "4 mutants: 1 survived, 0 false alarms, 1 killed" in result.stdout
    reasons = tmp_path / "explained.toml"
    reasons.write_text('[[explained]]\nafter = "*get_world_size*"\nreason = "a number"\n')
    result = mutate(*words, "--explained", str(reasons), "--format", "json", *ARGUMENTS)
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert [one["reason"] for one in report["mutants"] if one["fate"] == "survived"] == ["a number"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (MESH, "say which script to mutate"),
        ((str(PROGRAM),), "Missing option '--mesh'"),
        (("none.py", *MESH), "the script none.py does not exist"),
        ((str(PROGRAM), "--mesh", "dp=1"), "has one rank"),
        ((str(PROGRAM), *MESH, "--operator", "drops"), "there is no operator drops; there are drop, double"),
        ((str(PROGRAM), *MESH, "--explained", "none.toml"), "cannot read none.toml"),
    ],
)
def test_wrong_usage_is_told(words: tuple[str, ...], said: str) -> None:
    result = mutate(*words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "nothing in train.py can be mutated"),
        ("def f(:\n", "the program cannot be read: invalid syntax"),
        ("from shardwise import all_reduce, R\nall_reduce(1, 'tp', dst=R)\n", "does not pass without a mistake"),
    ],
)
def test_a_program_without_a_verdict_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    result = mutate("train.py", *MESH)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
