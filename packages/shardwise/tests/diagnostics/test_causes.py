"""Findings with one cause are one finding with several places, and what only looks alike stays apart."""

from __future__ import annotations

import linecache
from dataclasses import replace

import pytest

from shardwise.diagnostics.causes import by_cause
from shardwise.diagnostics.finding import Finding, Unsummed, render
from shardwise.diagnostics.fix import Fix, Insert, Wrap
from shardwise.diagnostics.printing.limits import EVERYTHING
from shardwise.diagnostics.source_location import Hop, Operand, SourceLocation

SOURCE = """\
h = partial()
y = torch.relu(h)
z = torch.sigmoid(h)
k = h + bias
"""


@pytest.fixture(autouse=True)
def _source():
    linecache.cache["step.py"] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), "step.py")
    yield
    linecache.cache.pop("step.py")


def missed(line, op, *, name="h", made=1, function="step", code="SW112", column=15):
    use = SourceLocation("step.py", line, line, column, column + 1, function)
    origin = (Hop("made here", SourceLocation("step.py", made, made, 4, 13, function)),)
    help = f'all_reduce({name}, "tp", src=P, dst=R) before {op} (all-reduce in forward)'
    return Finding(
        code,
        f"{op} needs complete values",
        SourceLocation("step.py", line, line, 4, 17, function),
        op,
        "tp",
        (Operand(name, "f32[4] {tp: P}", use, origin),),
        help=(help,),
        fixes=(Fix(help, (Wrap(use, "all_reduce", '"tp"', "P", "R"),)),),
    )


def test_uses_of_one_value_that_miss_one_step_are_one_finding_with_one_repair():
    (found,) = by_cause([missed(2, "relu"), missed(3, "sigmoid")])
    assert found.message == "relu needs complete values; the same at 1 more place"
    assert [place.location.line for place in found.places] == [2, 3]
    assert found.help == ('h = all_reduce(h, "tp", src=P, dst=R) once, before them (all-reduce in forward)',)
    ((wrap,),) = [fix.edits for fix in found.fixes]
    assert (wrap.location.line, wrap.location.column, wrap.op) == (1, 4, "all_reduce")


def test_a_pending_sum_that_is_read_has_the_cause_of_one_that_an_operator_takes():
    (found,) = by_cause([missed(2, "relu"), missed(3, "item", code="SW115")])
    assert (found.code, [place.code for place in found.alike]) == ("SW112", ["SW115"])
    assert len(by_cause([missed(2, "relu"), missed(3, "item", code="SW115", made=2)])) == 2


def test_a_value_without_a_line_of_its_own_is_mended_around_each_use():
    (found,) = by_cause([missed(2, "relu", name="xs[0]"), missed(3, "sigmoid", name="xs[0]")])
    assert found.help == ('all_reduce(xs[0], "tp", src=P, dst=R) before each of them (all-reduce in forward)',)
    assert [wrap.location.line for wrap in found.fixes[0].edits] == [2, 3]


@pytest.mark.parametrize("other", [{"name": "k"}, {"made": 4}, {"function": "other"}, {"code": "SW113"}])
def test_another_value_function_or_offence_stays_apart(other):
    findings = [missed(2, "relu"), missed(3, "sigmoid", **other)]
    assert by_cause(findings) == tuple(findings)
    assert not any(finding.alike for finding in by_cause(findings))


def test_a_repair_that_is_not_shared_is_not_offered_for_all():
    first, second = missed(2, "relu"), missed(3, "sigmoid")
    own = 'convert(bias, "tp", src=R, dst=P) before relu (zeroes)'
    bias = Operand("bias", "f32[4] {tp: R}", None, ())
    first = Finding(
        first.code, first.message, first.location, "relu", "tp", (*first.operands, bias), help=(*first.help, own)
    )
    (found,) = by_cause([first, second])
    assert len(found.help) == 1
    assert "convert" not in found.help[0]


def test_what_has_no_repair_or_no_place_stays_apart():
    alone = [
        Finding("SW301", "no rule"),
        Finding("SW301", "no rule"),
        Finding("SW116", "read", missed(2, "x").location),
    ]
    assert by_cause(alone) == tuple(alone)


def advised(line, op, *, name="h", function="step", said="make {name} for all ranks' elements"):
    one = replace(missed(line, op, name=name, function=function, code="SW402"), fixes=())
    return replace(one, help=(said.format(name=name),), facts=(f"not at {op}",))


def test_what_words_tell_to_do_with_one_value_is_one_finding():
    (found,) = by_cause([advised(2, "relu"), advised(3, "sigmoid"), advised(4, "add")])
    assert found.message == "relu needs complete values; the same at 2 more places"
    assert [place.location.line for place in found.places] == [2, 3, 4]
    assert (found.help, found.fixes) == (("make h for all ranks' elements",), ())
    assert found.facts == ("not at relu", "not at sigmoid", "not at add")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(advised(3, "sigmoid", name="k"), id="another value"),
        pytest.param(advised(3, "sigmoid", function="another"), id="another function"),
        pytest.param(advised(3, "sigmoid", said="leave {name} out"), id="other advice"),
        pytest.param(advised(3, "sigmoid", said="do it once"), id="advice about no operand"),
        pytest.param(replace(advised(3, "sigmoid"), fixes=missed(3, "sigmoid").fixes), id="an edit mends it"),
        pytest.param(replace(advised(3, "sigmoid"), code="SW403"), id="another offence"),
    ],
)
def test_other_advice_stays_apart(other):
    assert len(by_cause([advised(2, "relu"), other])) == 2


def test_places_beyond_the_limit_are_counted():
    uses = [missed(2, "relu"), *(missed(3, "sigmoid") for _ in range(12))]
    (found,) = by_cause(uses)
    assert "= note: and 4 more places; --all shows them" in render(found)
    assert "more places; --all" not in render(found, limits=EVERYTHING)


def unsummed(line, gradient, code, *, backward=1, axis="dp", fixed=True):
    help = f"dist.all_reduce({gradient or 'p.grad'}, group=dp) before it"
    use = SourceLocation("step.py", line, line, 4, 17, "step")
    fix = Fix(help, (Insert(use, (f"dist.all_reduce({gradient or 'p.grad'})",)),))
    since = Unsummed(SourceLocation("step.py", backward), gradient)
    return Finding(
        code, f"takes {gradient}", use, "op", axis, help=(help,), fixes=(fix,) if fixed else (), unsummed=since
    )


def test_a_norm_and_a_step_that_take_gradients_unsummed_miss_one_sum():
    (found,) = by_cause([unsummed(2, "p.grad", "SW112"), unsummed(3, "", "SW608")])
    assert found.message == "takes p.grad; the same sum is missing at 1 more place"
    assert [place.code for place in found.places] == ["SW112", "SW608"]
    assert found.help == ("dist.all_reduce(p.grad, group=dp) before it",)
    assert [edit.location.line for fix in found.fixes for edit in fix.edits] == [2]


def test_each_gradient_is_summed_once_where_it_is_first_taken():
    taken = [unsummed(2, "w", "SW112"), unsummed(3, "b", "SW111"), unsummed(4, "w", "SW112")]
    (found,) = by_cause(taken)
    assert found.help == ("dist.all_reduce(w, group=dp) before it, and alike b",)
    assert [edit.location.line for fix in found.fixes for edit in fix.edits] == [2, 3]


@pytest.mark.parametrize("other", [{"backward": 2}, {"axis": "tp"}])
def test_gradients_of_another_pass_or_axis_stay_apart(other):
    assert len(by_cause([unsummed(2, "p.grad", "SW112"), unsummed(3, "", "SW608", **other)])) == 2


def untyped(line, op, claim, *, name="h", code="SW103"):
    found = missed(line, op, name=name)
    help = f'assert_type({name}, {{"tp": {claim}}}) where it is made'
    return replace(found, code=code, message=f"nothing is known of {name}", help=(help,), fixes=(Fix(help, ()),))


def test_uses_of_what_has_no_type_miss_one_annotation():
    (found,) = by_cause([untyped(2, "relu", "R"), untyped(3, "sigmoid", "P"), untyped(4, "add", "V", code="SW207")])
    assert found.message == "nothing is known of h; the same at 2 more places"
    assert found.help == ('assert_type(h, {"tp": R}) where it is made',)
    assert [place.code for place in found.places] == ["SW103", "SW103", "SW207"]
    assert len(by_cause([untyped(2, "relu", "R"), untyped(3, "relu", "R", name="k")])) == 2


def test_a_step_that_writes_the_value_is_not_made_before_each_use():
    """Twice it would be summed twice."""
    uses = [missed(2, "relu"), missed(3, "sigmoid")]
    writes = [
        replace(use, fixes=(Fix(use.help[0], (Insert(use.location, ("h = spmd.all_reduce(h)",)),)),)) for use in uses
    ]
    (found,) = by_cause(writes)
    assert found.help == ('h = all_reduce(h, "tp", src=P, dst=R) once, before them (all-reduce in forward)',)
    assert not found.fixes


def test_in_a_lambda_nothing_is_assigned():
    (found,) = by_cause(
        [missed(2, "relu", function="f.<locals>.<lambda>"), missed(3, "relu", function="f.<locals>.<lambda>")]
    )
    assert found.help == ('all_reduce(h, "tp", src=P, dst=R) before each of them (all-reduce in forward)',)
    ((first, second),) = [fix.edits for fix in found.fixes]
    assert (first.location.line, second.location.line) == (2, 3)


def test_what_a_repair_depends_on_is_said_of_all_places():
    uses = [missed(2, "relu"), missed(3, "sigmoid")]
    uses = [replace(use, help=(f"{use.help[0].partition(' (')[0]}, if they are addends",), fixes=()) for use in uses]
    (found,) = by_cause(uses)
    assert found.help == ('h = all_reduce(h, "tp", src=P, dst=R) once, before them, if they are addends',)
