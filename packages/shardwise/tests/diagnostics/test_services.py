"""The forms that code-scanning services read: SARIF and the workflow commands of GitHub Actions."""

import json
import linecache

import pytest

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.formats import to_json
from shardwise.diagnostics.result import RunResult, Stop, StopReason
from shardwise.diagnostics.services.annotations import to_github
from shardwise.diagnostics.services.junit import to_junit
from shardwise.diagnostics.services.sarif import to_sarif
from shardwise.diagnostics.source_location import Hop, Operand, SourceLocation

FILE = "/project/my model.py"
CALL = SourceLocation(FILE, 2, 2, 4, 16, "f")


@pytest.fixture(autouse=True)
def _source():
    linecache.cache[FILE] = (1, None, ["h = w @ x\n", "ä = F.gelu(h)\n"], FILE)
    yield
    linecache.cache.pop(FILE)


GELU = Finding(
    "SW112",
    "gelu needs complete values",
    location=CALL,
    op="gelu",
    axis="tp",
    operands=(Operand("h", "f32[4] {tp: P}", None, (Hop("partial since here", SourceLocation(FILE, 1, 1, 4, 9)),)),),
    facts=("100% of h, a partial sum",),
    help=('all_reduce(h, "tp", src=P, dst=R)',),
    count=2,
)
WARNING = Finding("SW116", "ranks may branch", location=SourceLocation(FILE, 1, 2, 0, 3))


def test_a_sarif_result_has_its_rule_place_and_origins():
    log = json.loads(to_sarif(RunResult((GELU, WARNING), checked_ops=3), root="/project", version="0.1"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [(rule["id"], rule["defaultConfiguration"]["level"]) for rule in run["tool"]["driver"]["rules"]] == [
        ("SW112", "error"),
        ("SW116", "warning"),
    ]
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"], first["occurrenceCount"]) == ("SW112", 0, "error", 2)
    assert (second["ruleId"], second["ruleIndex"], second["level"]) == ("SW116", 1, "warning")
    location = first["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "my%20model.py"
    # Python counts bytes, and the letter before the call takes two.
    assert location["region"] == {"startLine": 2, "startColumn": 4, "endLine": 2, "endColumn": 14}
    assert run["columnKind"] == "unicodeCodePoints"
    (origin,) = first["relatedLocations"]
    assert origin["message"]["text"] == "h: f32[4] {tp: P}, partial since here"
    assert origin["physicalLocation"]["region"]["startLine"] == 1
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1, "toolExecutionNotifications": []}]


def test_a_run_that_crashed_is_no_sarif_result():
    stopped = RunResult(checked_ops=3, stopped=Stop(StopReason.SCRIPT_ERROR, "ValueError: boom", CALL))
    (run,) = json.loads(to_sarif(stopped, root="/project"))["runs"]
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    assert invocation["toolExecutionNotifications"][0]["message"]["text"].startswith("SW910 script-error: ")


def test_github_commands_are_one_escaped_line_each():
    assert to_github(RunResult((GELU, WARNING), checked_ops=3), root="/project").splitlines() == [
        "::error file=my model.py,line=2,endLine=2,col=4,endColumn=14,title=SW112 partial-sum-in-nonlinear-op"
        "::gelu needs complete values%0A100%25 of h, a partial sum%0A2 times at this place"
        '%0Ahelp: all_reduce(h, "tp", src=P, dst=R)',
        "::warning file=my model.py,line=1,endLine=2,title=SW116 varying-value-read::ranks may branch",
    ]


def test_a_github_property_cannot_break_out_of_its_place():
    finding = Finding("SW905", "x", location=SourceLocation("/project/a,b:c.py", 1))
    text = to_github(RunResult((finding,), checked_ops=1), root="/project")
    assert text == "::error file=a%2Cb%3Ac.py,line=1,title=SW905 bad-argument::x"


def test_a_run_without_a_verdict_is_an_error_of_the_workflow():
    assert to_github(RunResult()).startswith("::error title=SW911 nothing-checked::")
    assert to_github(RunResult(checked_ops=1)) == ""


def test_half_of_a_surrogate_pair_in_what_a_program_says_breaks_no_form():
    half = "\ud800"
    finding = Finding("SW112", f"gelu {half}", location=CALL, facts=(f"of {half}",), help=(f"call {half}",))
    stop = Stop(StopReason.SCRIPT_ERROR, f"ValueError: {half}", CALL)
    for form in (to_sarif, to_github, to_junit, to_json):
        assert form(RunResult((finding,), checked_ops=3)).encode("utf-8")
        assert form(RunResult((), checked_ops=3, stopped=stop)).encode("utf-8")
