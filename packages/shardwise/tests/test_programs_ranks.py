"""Do several ranks of the right programs run to their ends together? Those that ask the most different things."""

from __future__ import annotations

import pytest

from shardwise.cli.ranks import check_ranks
from shardwise.cli.ranks_option import RankChoice
from shardwise.simulator.program import Program

from .test_programs import FOLDER, expected_findings, options_of

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


@pytest.mark.parametrize("name", TALKATIVE)
def test_the_corners_of_a_right_program_agree(name):
    path = FOLDER / "right" / f"{name}.py"
    result = check_ranks(Program(path=str(path)), options_of(path), RankChoice(word="corners"))
    assert not expected_findings(path)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert result.ending is None, result.ending
    assert len(result.ranks) > 1
    assert result.collectives
