import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.coverage import Coverage, OwnData, UnjudgedGradients
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Finding, Unsummed
from shardwise.diagnostics.fix import Fix, Within, Wrap
from shardwise.diagnostics.formats import SCHEMA, from_json, to_dict, to_json
from shardwise.diagnostics.result import HeldBack, HeldBackBy, IgnoreSeen, Noted, RunResult, Stop, StopReason
from shardwise.diagnostics.source_location import Hop, Operand, SourceLocation

PLACE = SourceLocation("model.py", 7, 7, 8, 17, "forward")
FULL = RunResult(
    coverage=Coverage(
        1,
        2,
        3,
        4,
        ("dp",),
        (OwnData("x of Model", SourceLocation("m.py", 3), ((0, 1), (0, 2)), False, "ab", (0, 1)),),
        (UnjudgedGradients("tp", 1, 2),),
    ),
    findings=(
        Finding(
            "SW112",
            "gelu needs complete values",
            location=PLACE,
            op="gelu",
            axis="tp",
            operands=(
                Operand("h", "f32[4] {tp: P}", PLACE, (Hop("partial since here", SourceLocation("model.py", 6)),)),
            ),
            facts=("gelu(1 + 1) is not gelu(1) + gelu(1)",),
            help=('all_reduce(h, "tp", src=P, dst=R)',),
            fixes=(
                Fix('all_reduce(h, "tp", src=P, dst=R)', (Wrap(PLACE, "all_reduce", '"tp"', "P", "R"),)),
                Fix("with stream", (Within(PLACE, "stream"),), choice=True),
            ),
            count=3,
            unsummed=Unsummed(PLACE, "weight.grad"),
        ),
        Finding("SW116", "größe"),
        Finding("SW113", "noted", configured=Severity.NOTE),
    ),
    checked_ops=10,
    unchecked_ops=2,
    no_rule_ops=(("fancy", 2),),
    trusted=(Noted("annotation", PLACE, 4), Noted("rule of MyKernel")),
    stopped=Stop(StopReason.SCRIPT_ERROR, "ValueError: boom", PLACE),
    duration_s=1.25,
    mesh="dp=2, tp=2",
    script="train.py",
    rank=3,
    ignores=(IgnoreSeen(PLACE, True),),
    held_back=(HeldBack(Finding("SW113", "add"), HeldBackBy.COMMENT, "known"),),
    gone=("SW112 in model.py: y = gelu(x)",),
)


@pytest.mark.parametrize("result", [FULL, RunResult(), RunResult(checked_ops=1, stopped=Stop(StopReason.INTERRUPTED))])
def test_there_and_back_again_loses_nothing(result):
    back = from_json(to_json(result))
    assert back == result
    assert [finding.count for finding in back.findings] == [finding.count for finding in result.findings]
    assert [finding.unsummed for finding in back.findings] == [finding.unsummed for finding in result.findings]


def test_every_field_of_a_result_is_written():
    assert {field.name for field in fields(RunResult)} <= set(to_dict(FULL))
    # The schema says "place", as it did before the word changed: within a version keys are only added.
    own = {field.name for field in fields(Finding)} - {"location"} | {"place"}
    assert own <= set(to_dict(FULL)["findings"][0])
    assert {field.name for field in fields(SourceLocation)} == set(to_dict(FULL)["findings"][0]["place"])


def test_the_document_states_schema_verdict_and_exit_code():
    data = json.loads(to_json(FULL))
    assert (data["schema"], data["verdict"], data["exit_code"]) == ("shardwise.check/2", "findings", 1)
    assert (data["errors"], data["warnings"], data["notes"]) == (1, 1, 1)
    assert data["findings"][0]["name"] == "partial-sum-in-nonlinear-op"


def test_a_key_added_later_is_ignored():
    assert from_json(json.dumps({**to_dict(FULL), "new": 1})) == FULL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a JSON document"),
        ("[]", "schema None"),
        (json.dumps({**to_dict(FULL), "schema": "shardwise.check/3"}), "shardwise.check/3"),
        (json.dumps({"schema": SCHEMA}), "damaged"),
        (json.dumps({**to_dict(FULL), "stopped": {"reason": "bored", "text": "", "place": None}}), "bored"),
    ],
)
def test_other_documents_are_refused(text, words):
    with pytest.raises(SpmdTypeError, match=re.escape(words)) as caught:
        from_json(text)
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "SW905"


def test_the_documentation_lists_every_key():
    page = (Path(__file__).parents[4] / "docs" / "json.md").read_text()
    data = to_dict(FULL)
    keys = {*data, *data["findings"][0], *data["findings"][0]["place"], *data["findings"][0]["operands"][0]}
    assert {key for key in keys if f'"{key}"' not in page and f"`{key}`" not in page} == set()
