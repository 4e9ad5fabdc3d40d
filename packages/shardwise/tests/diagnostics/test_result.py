import sys
import threading

import pytest

from shardwise.diagnostics.coverage import Coverage
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector, ExitCode, Noted, RunResult, Stop, StopReason, group
from shardwise.diagnostics.source import Site, user_site
from shardwise.diagnostics.source_location import SourceLocation

ERROR = Finding("SW112", "gelu needs complete values", location=SourceLocation("m.py", 3), op="gelu", axis="tp")
WARNING = Finding("SW116", "ranks may branch differently", location=SourceLocation("m.py", 4), op="bool", axis="tp")
CRASH = Stop(StopReason.SCRIPT_ERROR, "ValueError: boom", SourceLocation("m.py", 9))
CTRL_C = Stop(StopReason.INTERRUPTED)
EXCHANGES = Coverage(unjudged_axes=("dp",))
CLAIM = Noted("assert_type", SourceLocation("m.py", 2))


@pytest.mark.parametrize(
    ("result", "exit_code", "verdict", "ending"),
    [
        (RunResult(checked_ops=3), ExitCode.CLEAN, "clean", None),
        (RunResult(checked_ops=1, unchecked_ops=150), ExitCode.INCONCLUSIVE, "inconclusive", None),
        (RunResult(checked_ops=1, unchecked_ops=150, trusted=(CLAIM,)), ExitCode.CLEAN, "clean", None),
        (RunResult(checked_ops=1, unchecked_ops=150, collectives=4), ExitCode.INCONCLUSIVE, "inconclusive", None),
        (RunResult((ERROR,), checked_ops=3), ExitCode.FINDINGS, "findings", None),
        (RunResult((WARNING,), checked_ops=3), ExitCode.CLEAN, "clean", None),
        (RunResult(), ExitCode.BROKEN, "nothing-checked", "SW911"),
        (RunResult((WARNING,)), ExitCode.BROKEN, "nothing-checked", "SW911"),
        (RunResult(coverage=EXCHANGES), ExitCode.INCONCLUSIVE, "inconclusive", None),
        (RunResult((ERROR,)), ExitCode.FINDINGS, "findings", None),
        (RunResult(checked_ops=3, stopped=CRASH), ExitCode.BROKEN, "script-error", "SW910"),
        (RunResult(stopped=CRASH), ExitCode.BROKEN, "script-error", "SW910"),
        (RunResult((ERROR,), checked_ops=3, stopped=CRASH), ExitCode.FINDINGS, "findings", "SW910"),
        (RunResult(checked_ops=3, stopped=CTRL_C), ExitCode.BROKEN, "interrupted", "SW912"),
        (RunResult((ERROR,), checked_ops=3, stopped=CTRL_C), ExitCode.BROKEN, "interrupted", "SW912"),
    ],
)
def test_the_exit_code_follows_from_what_was_found(result, exit_code, verdict, ending):
    assert result.exit_code is exit_code
    assert result.verdict == verdict
    assert (result.ending and result.ending.code) == ending


def test_the_exit_codes_are_the_documented_numbers():
    assert [int(code) for code in (ExitCode.CLEAN, ExitCode.FINDINGS, ExitCode.BROKEN)] == [0, 1, 2]


def test_a_crash_is_told_with_its_place_and_what_was_checked_until_then():
    ending = RunResult(checked_ops=1, stopped=CRASH).ending
    assert ending.message == "the program raised ValueError: boom after 1 checked operation"
    assert ending.location == SourceLocation("m.py", 9)


def test_equal_cause_at_equal_place_is_one_finding_with_a_count():
    elsewhere = Finding("SW112", "x", location=SourceLocation("m.py", 5), op="gelu", axis="tp")
    other_axis = Finding("SW112", "x", location=SourceLocation("m.py", 3), op="gelu", axis="dp")
    grouped = group([ERROR, elsewhere, ERROR, other_axis, WARNING, ERROR])
    assert [(f.code, f.location.line, f.axis, f.count) for f in grouped] == [
        ("SW112", 3, "tp", 3),
        ("SW112", 5, "tp", 1),
        ("SW112", 3, "dp", 1),
        ("SW116", 4, "tp", 1),
    ]


def test_grouping_twice_keeps_the_counts():
    assert [f.count for f in group(group([ERROR, ERROR]))] == [2]


def test_findings_without_a_place_are_told_apart_by_message():
    assert len(group([Finding("SW905", "a"), Finding("SW905", "b"), Finding("SW905", "a")])) == 2


def test_a_collector_builds_the_result():
    collector = Collector(mesh="dp=2, tp=2", script="train.py", rank=0)
    collector.add(ERROR)
    collector.add(WARNING)
    collector.count_checked()
    collector.count_checked(4)
    collector.count_unchecked()
    for op in ("erfcx", "fancy", "fancy"):
        collector.count_no_rule(op)
    for _ in range(2):
        collector.trust("assert_type on an input", SourceLocation("m.py", 1))
    result = collector.result()
    assert (result.errors, result.warnings) == ((ERROR,), (WARNING,))
    assert (result.checked_ops, result.unchecked_ops) == (5, 1)
    assert result.no_rule_ops == (("fancy", 2), ("erfcx", 1))
    assert [(t.what, t.location.line, t.count) for t in result.trusted] == [("assert_type on an input", 1, 2)]
    assert (result.mesh, result.script, result.rank) == ("dp=2, tp=2", "train.py", 0)
    assert result.duration_s >= 0


def test_a_trusted_site_is_resolved_to_its_place():
    collector = Collector()
    site = user_site(0)
    assert isinstance(site, Site)
    collector.trust("input", site)
    assert collector.result().trusted[0].location == site.location()
    assert collector.result().trusted[0].location.file == __file__


def test_the_first_reason_to_stop_stays():
    collector = Collector()
    collector.stop(StopReason.SCRIPT_ERROR, "ValueError: boom")
    collector.stop(StopReason.INTERRUPTED)
    assert collector.result().stopped == Stop(StopReason.SCRIPT_ERROR, "ValueError: boom")


def test_a_program_on_a_mesh_of_one_rank_is_told_so():
    ending = RunResult(unchecked_ops=84, own_mesh="dp=1, tp=1", script="train.py").ending
    assert ending.code == "SW911"
    assert ending.facts == ("every axis of its mesh dp=1, tp=1 has one rank, along which nothing can differ",)
    assert "shardwise check train.py -- --help" in ending.help[0]
    assert (
        "shardwise verify train.py --mesh dp=2,tp=1"
        in RunResult(own_mesh="dp=2, tp=1", script="train.py").ending.help[0]
    )


def test_a_mesh_of_one_rank_is_told_of_whatever_mesh_was_asked_for_and_the_command_can_be_typed():
    ending = RunResult(unchecked_ops=84, own_mesh="dp=1", mesh="dp=4", script="train.py").ending
    assert "has one rank" in ending.facts[0]
    assert "shardwise check train.py --mesh dp=4 -- --help may list them" in ending.help[0]


def test_threads_lose_nothing():
    collector = Collector()

    def work():
        for _ in range(500):
            collector.count_checked()
            collector.add(ERROR)
            collector.trust("input")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    result = collector.result()
    assert (result.checked_ops, result.findings[0].count, result.trusted[0].count) == (2000, 2000, 2000)
