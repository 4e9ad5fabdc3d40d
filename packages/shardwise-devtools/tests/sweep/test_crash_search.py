"""Does any operator with any placement and argument end in an error of the checker's own? Fixed seeds; all by night."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from shardwise.checker.operators import judging
from shardwise_devtools.sweep.crash_command import crashes
from shardwise_devtools.sweep.crash_search import names_of, search

SLICE = names_of()[3::23]
"""An operator of every neighbourhood of the database."""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SLICE)
def test_no_call_ends_in_an_error_of_the_checkers_own(name):
    found = search(name, 12)
    assert [str(crash) for crash in found.crashes] == []


@pytest.mark.slow
def test_the_slice_does_call_operators():
    assert sum(search(name, 1).tries for name in SLICE[::4]) > len(SLICE[::4]) * 3 // 4


@pytest.fixture
def broken_checker(monkeypatch):
    """A checker that counts on an argument that some calls do not have."""
    from shardwise.checker.operators import first_calls

    def judge(session, op, args, kwargs):
        assert args[1] is not None
        return judging.judge(session, op, args, kwargs)

    monkeypatch.setattr(first_calls, "judge", judge)


@pytest.mark.slow
@pytest.mark.usefixtures("broken_checker")
def test_a_crash_is_found_and_seen_again():
    first, again = search("abs", 40), search("abs", 40)
    assert len(first.crashes) > 3
    assert first.crashes == again.crashes
    assert "IndexError" in first.crashes[0].error
    assert first.crashes[0].place.startswith("sweep/")


@pytest.mark.processes
def test_the_command_counts_and_refuses_a_name_that_is_none():
    result = CliRunner().invoke(crashes, ["--ops", "mul", "--tries", "5", "--jobs", "1"])
    assert result.exit_code == 0
    assert result.stdout == "0 crashes in 5 calls of 1 operators, seed 0\n"
    result = CliRunner().invoke(crashes, ["--ops", "nonesuch"])
    assert result.exit_code == 2
    assert "no operator of the database matches 'nonesuch'" in result.stderr
