"""The files for services: the steps of the GitHub action and the hooks do what the page says, run by a real shell."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from shardwise.cli.check import check
from shardwise.cli.options.command_list import COMMANDS

ROOT = Path(__file__).parents[4]
BROKEN = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": P})
    y = torch.relu(x)
    import sys
    print("words", sys.argv[1:])
"""


def on_path(folder):
    """A folder with the command, as an installation has it."""
    command = folder / "bin" / "shardwise"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m shardwise "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
def test_the_action_annotates_and_leaves_its_files(project, tmp_path):
    project.write(BROKEN, typed=True)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    given = {
        "script": "train.py",
        "options": "--mesh 'dp=2,tp=4'",
        "arguments": "--lr 3 'two words'",
        "sarif": "out.sarif",
        "trend": "trend.jsonl",
        "badge": "badge.json",
    }
    assert set(given) == set(action["inputs"])
    env = {name: given[text.split("inputs.")[1].split()[0]] for name, text in step["env"].items()}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**os.environ, **env, "PATH": on_path(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=train.py,line=9,")
    assert "words ['--lr', '3', 'two words']" in done.stderr
    assert json.loads(Path("out.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "SW112"
    (line,) = Path("trend.jsonl").read_text().splitlines()
    assert json.loads(line)["codes"] == {"SW112": 1}
    assert json.loads(Path("badge.json").read_text())["message"] == "1 error"


def test_the_hooks_name_commands_that_there_are():
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["entry"].split()[1] in COMMANDS for hook in hooks] == [True, True]
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)


def test_the_workflow_of_the_page_gives_what_the_action_takes():
    page = (ROOT / "docs/howto/ci.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    steps = yaml.safe_load(blocks[0])["jobs"]["shardwise"]["steps"]
    (ours,) = [step for step in steps if "shardwise@" in step.get("uses", "")]
    assert set(ours["with"]) <= set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])
    words = shlex.split(ours["with"]["options"])
    known = {name for option in check.params if isinstance(option, click.Option) for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize(
    ("source", "message", "color"),
    [
        (BROKEN, "1 error", "red"),
        (BROKEN.replace('"tp": P', '"tp": R'), "clean", "brightgreen"),
        ("raise ValueError", "script-error", "lightgrey"),
        (BROKEN.replace("relu(x)", "relu(x)  # shardwise: ignore[SW112]"), "clean, 1 held back", "brightgreen"),
    ],
)
def test_the_badge_says_the_verdict(project, source, message, color):
    project.write(source, typed=True)
    badge = json.loads(project.check("train.py", "--statistics", "--format", "badge").stdout)
    assert badge == {"schemaVersion": 1, "label": "shardwise", "message": message, "color": color}


def test_a_badge_is_for_statistics(project):
    result = project.check_source(BROKEN, "--format", "badge")
    assert (result.exit_code, "add --statistics" in result.stderr) == (2, True)
