"""``shardwise check --format``: the forms for services, end to end."""

from __future__ import annotations

import io
import json
import sys

import pytest

from shardwise.cli.runs.screen import screen

BROKEN = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": P})
    y = torch.relu(x)
"""


def test_sarif_goes_to_stdout_as_one_document(project):
    result = project.check_source(BROKEN, "--format", "sarif")
    assert result.exit_code == 1
    (run,) = json.loads(result.stdout)["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("SW112", "error")]
    location = run["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "train.py"
    assert location["region"] == {"startLine": 9, "startColumn": 9, "endLine": 9, "endColumn": 22}


def test_github_annotations_are_one_line_per_finding(project):
    result = project.check_source(BROKEN, "--format", "github")
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(
        "::error file=train.py,line=9,endLine=9,col=9,endColumn=22,title=SW112 partial-sum-in-nonlinear-op::relu needs"
    )


@pytest.mark.parametrize(
    ("variables", "colored"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colour_is_for_terminals_that_have_it(variables, colored, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert screen("auto").color is colored
    assert screen("always").color
