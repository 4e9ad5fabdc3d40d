"""``verify --html``: the numbers beside the types, and which tensors disagree."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main

pytestmark = pytest.mark.processes
MODEL = """
import torch
import torch.distributed as dist
from shardwise import R, assert_type

def right():
    x = assert_type(torch.ones(4), {"tp": R})
    return x * 2

def wrong():
    return assert_type(torch.ones(4) * (1 + dist.get_rank()), {"tp": R})
"""
MANY = """
def many():
    return [assert_type(torch.ones(4) * (at + dist.get_rank()), {"tp": R}) for at in range(15)]
"""


@pytest.mark.parametrize(
    ("function", "code", "parts"),
    [
        (
            "right",
            0,
            ("equal to the run on one rank", "Nothing that was compared disagrees.", "f32[4] {tp: R}"),
        ),
        ("wrong", 1, ("disagreement", "wrong numbers", "by up to 1")),
    ],
)
def test_the_page_has_types_and_numbers(project, function, code, parts):
    project.write(MODEL, "model.py")
    command = ["verify", f"model.py:{function}", "--mesh", "tp=2", "--html", "report.html"]
    assert CliRunner().invoke(main, command).exit_code == code
    page = Path("report.html").read_text("utf-8")
    for part in ("Numbers against one rank", *parts):
        assert part in page, part


def test_what_disagrees_is_one_list_that_the_page_shows_whole(project):
    project.write(MODEL + MANY, "many.py")
    command = ["verify", "many.py:many", "--mesh", "tp=2", "--html", "report.html"]
    told = CliRunner().invoke(main, command).stdout
    page = Path("report.html").read_text("utf-8")
    assert "more tensors; --all shows them" in told
    assert "--all shows" not in page
    assert page.count('data-find="number"') == 15 + 15  # as annotated, and as outputs
