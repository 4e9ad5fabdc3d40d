"""Do several ranks of the right programs run to their ends together? Those that ask the most different things."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .test_programs import FOLDER, expected_findings, options_of

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

# Each of these asks something else of other ranks: messages, exchanges with and without sizes, wrappers that reduce by
# themselves, handles that are waited for later.
TALKATIVE = [
    "pipeline",
    "moe_all_to_all",
    "fsdp",
    "ddp_wrapper",
    "raw_collectives",
    "gradient_buckets",
    "ragged_tokens",
    "lengths_decided_by_values",
]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TALKATIVE)
def test_the_corners_of_a_right_program_agree(name):
    """By a command of its own: ranks are forked, and autograd's threads in this process do not survive that."""
    path = FOLDER / "right" / f"{name}.py"
    assert not expected_findings(path)
    words = ["--world-size", str(options_of(path).world_size), "--ranks", "corners", "--format", "json"]
    command = [sys.executable, "-m", "shardwise", "check", str(path), *words]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)
    assert (report["findings"], report["stopped"]) == ([], None), report
    assert len(report["ranks"]) > 1
    assert report["collectives"]
