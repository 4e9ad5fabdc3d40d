"""``shardwise`` without a command, help by what options are about, and paths that are no script."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.cli.options.command_list import COMMANDS, LISTED
from shardwise.cli.options.sections import SECTIONS


def test_every_command_has_one_whole_line():
    shown = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output
    with click.Context(main) as context:
        assert set(main.list_commands(context)) <= set(LISTED)
        for name in COMMANDS:
            assert main.get_command(context, name).name == name
    for name, listed in LISTED.items():
        assert sum(line.split(maxsplit=1) == [name, listed.summary] for line in shown.splitlines()) == 1
    assert "..." not in shown.partition("\n")[2]


@pytest.mark.parametrize("name", ["check", "verify"])
def test_help_has_every_option_once_below_a_heading(name):
    shown = CliRunner().invoke(main, [name, "--help"]).output
    with click.Context(main) as context:
        params = [one for one in main.get_command(context, name).get_params(context) if isinstance(one, click.Option)]
    for param in params:
        if "--help" in param.opts:
            continue
        lines = [line for line in shown.splitlines() if line.startswith("  -") and line.split()[0] == param.opts[0]]
        assert len(lines) == (0 if param.hidden else 1), param.opts[0]
    assert shown.count("\nOptions:\n") == 1
    placed = [option for names in SECTIONS.values() for option in names.split()]
    assert len(placed) == len(set(placed))


def test_every_option_with_a_heading_is_one_of_a_command():
    with click.Context(main) as context:
        known = {
            param.opts[0]
            for name in ("check", "verify")
            for param in main.get_command(context, name).get_params(context)
        }
    assert {option for names in SECTIONS.values() for option in names.split()} <= known


def test_without_a_word_the_page_is_shown_and_nothing_called_an_error():
    shown = CliRunner().invoke(main, [])
    assert shown.exit_code != 1
    assert shown.output.startswith("Usage: ")
    assert "Error" not in shown.output
    assert shown.output.count("Usage: ") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["help", "check"], "no such command 'help': shardwise COMMAND --help"),
        (["fix", "train.py"], "no such command 'fix': shardwise check SCRIPT --fix"),
    ],
)
def test_a_command_of_other_tools_is_told_as_what_it_is_here(words, said):
    shown = CliRunner().invoke(main, words, prog_name="shardwise")
    assert (shown.exit_code, said in shown.output) == (2, True)


@pytest.mark.parametrize("command", [["check"], ["verify", "--mesh", "dp=2"]])
def test_what_is_no_script_is_told_with_the_way_out(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "notes.ipynb").write_text('{"cells": []}')
    said = [CliRunner().invoke(main, [*command, name]) for name in ("trian.py", "train", "notes.ipynb", "other.py")]
    assert [one.exit_code for one in said] == [2] * 4
    assert "the script trian.py does not exist; did you mean train.py?" in said[0].output
    assert "did you mean train.py?" in said[1].output
    assert "jupyter nbconvert --to script notes.ipynb" in said[2].output
    assert "did you mean" not in said[3].output
