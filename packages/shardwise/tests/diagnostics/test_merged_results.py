"""Do the results of several ranks become one, with every mistake told once and every difference told?"""

from __future__ import annotations

import pytest

from shardwise.diagnostics.finding import Finding, render
from shardwise.diagnostics.formats import from_json, to_json
from shardwise.diagnostics.merged_results import merge
from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.result import ExitCode, Noted, RunResult, Stop, StopReason
from shardwise.diagnostics.source_location import SourceLocation

HERE, THERE = SourceLocation("train.py", 3), SourceLocation("train.py", 9)
NOT_LINEAR = Finding("SW112", "relu needs complete values", HERE, "relu", "tp")
DIVERGING = Finding("SW501", "ranks part ways", THERE)


def result(*findings: Finding, **different) -> RunResult:
    return RunResult(findings, **{"checked_ops": 2, "unchecked_ops": 1, "script": "train.py", **different})


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), "no rank"),
        ((3,), "rank 3"),
        ((0, 1), "ranks 0 and 1"),
        ((2, 0, 1), "ranks 0-2"),
        ((0, 1, 2, 5), "ranks 0-2 and 5"),
        ((0, 1, 4, 6, 7, 8), "ranks 0, 1, 4 and 6-8"),
    ],
)
def test_ranks_in_a_sentence(ranks, text):
    assert ranks_text(ranks) == text


def test_a_finding_of_all_ranks_is_one_without_numbers():
    merged = merge({0: result(NOT_LINEAR), 1: result(NOT_LINEAR)})
    assert [(one.code, one.ranks) for one in merged.findings] == [("SW112", ())]
    assert (merged.checked_ops, merged.unchecked_ops, merged.ranks, merged.rank) == (4, 2, (0, 1), None)


def test_a_finding_of_some_ranks_says_which_and_takes_the_largest_count():
    twice = Finding("SW112", "relu needs complete values", HERE, "relu", "tp", count=2)
    (finding,) = merge({0: result(NOT_LINEAR), 1: result(), 2: result(twice)}).findings
    assert (finding.ranks, finding.count) == ((0, 2), 2)
    assert "= note: on ranks 0 and 2 only" in render(finding)


def test_what_is_about_all_ranks_stands_first():
    merged = merge({0: result(NOT_LINEAR), 1: result(NOT_LINEAR)}, [DIVERGING], collectives=7)
    assert [one.code for one in merged.findings] == ["SW501", "SW112"]
    assert (merged.collectives, merged.exit_code) == (7, ExitCode.FINDINGS)


def test_what_was_trusted_and_has_no_rule_is_that_of_the_rank_with_the_most():
    one = result(trusted=(Noted("assert_type", HERE, 2),), no_rule_ops=(("odd", 1), ("strange", 4)))
    two = result(trusted=(Noted("assert_type", HERE, 3),), no_rule_ops=(("odd", 5),))
    merged = merge({0: one, 1: two})
    assert merged.trusted == (Noted("assert_type", HERE, 3),)
    assert merged.no_rule_ops == (("odd", 5), ("strange", 4))


RAISED = Stop(StopReason.SCRIPT_ERROR, "ValueError: no data", HERE)


def test_an_exception_on_all_ranks_is_one_and_on_some_it_is_said_on_which():
    assert merge({0: result(stopped=RAISED), 1: result(stopped=RAISED)}).stopped == RAISED
    some = merge({0: result(), 1: result(stopped=RAISED)}).stopped
    assert (some.text, some.location) == ("ValueError: no data on rank 1", HERE)


def test_an_interruption_goes_before_everything_else():
    stopped = Stop(StopReason.INTERRUPTED)
    merged = merge({0: result(NOT_LINEAR, stopped=RAISED), 1: result(stopped=stopped)})
    assert (merged.stopped, merged.exit_code) == (stopped, ExitCode.BROKEN)


def test_json_keeps_the_ranks():
    merged = merge({0: result(NOT_LINEAR), 1: result()}, [DIVERGING], collectives=7)
    again = from_json(to_json(merged))
    assert (again, again.ranks, again.collectives, again.findings[1].ranks) == (merged, (0, 1), 7, (0,))
