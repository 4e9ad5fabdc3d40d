"""The terminal form, compared as a whole at a fixed width."""

import linecache
import re
import shlex
import textwrap

import pytest

from shardwise.diagnostics.coverage import Coverage
from shardwise.diagnostics.finding import Finding, render
from shardwise.diagnostics.printing.limits import EVERYTHING, Limits, rest
from shardwise.diagnostics.printing.printable import cells, clean, safe_repr, safe_str, window
from shardwise.diagnostics.result import Noted, RunResult, Stop, StopReason
from shardwise.diagnostics.source_location import Hop, Operand, SourceLocation
from shardwise.diagnostics.text import render_result

ROOT = "/project"
MODEL = """\
import torch.nn.functional as F


def forward(self, x, a, b):
    x = self.norm(x)
    h = F.linear(x, self.w_down)
    y = F.gelu(h)
    return y * a * a + b + F.dropout(
        y,
        p=0.5,
    )
\treturn y * a
    grün = 界面 * a
"""
LONG = "value = " + "before + " * 20 + "bad * worse" + " + after" * 20 + "\n"
SOURCES = {"model.py": MODEL, "lib/other.py": "w = assert_type(w, {'tp': P})\n", "long.py": LONG}


@pytest.fixture(autouse=True)
def _sources():
    for name, text in SOURCES.items():
        file = f"{ROOT}/{name}"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    yield
    for name in SOURCES:
        linecache.cache.pop(f"{ROOT}/{name}")


def at(line, text, occurrence=0, name="model.py"):
    """The location of ``text`` in a line of the sources."""
    source = SOURCES[name].splitlines()[line - 1]
    start = [match.start() for match in re.finditer(re.escape(text), source)][occurrence]
    column = len(source[:start].encode())
    return SourceLocation(f"{ROOT}/{name}", line, line, column, column + len(text.encode()))


def shown(finding, **options):
    return render(finding, root=ROOT, **{"width": 100, **options})


def expect(text):
    return textwrap.dedent(text).strip("\n")


GELU = Finding(
    "SW112",
    "gelu needs complete values, but h is still a partial sum over tp",
    location=at(7, "F.gelu(h)"),
    op="gelu",
    axis="tp",
    operands=(
        Operand(
            "h",
            "f32[4, 512] {dp: S(0), tp: P}",
            at(7, "h"),
            (Hop("partial since here", at(6, "F.linear(x, self.w_down)")),),
        ),
    ),
    help=('all_reduce(h, "tp", src=P, dst=R) before gelu',),
)


def test_a_finding_reads_like_the_example_of_the_specification():
    assert shown(GELU) == expect(
        """
        SW112 partial-sum-in-nonlinear-op: gelu needs complete values, but h is still a partial sum over tp
         --> model.py:7:9
          |
        6 |     h = F.linear(x, self.w_down)
          |         ------------------------ h: f32[4, 512] {dp: S(0), tp: P}, partial since here
        7 |     y = F.gelu(h)
          |         ^^^^^^^^^ non-linear in h
          = help: all_reduce(h, "tp", src=P, dst=R) before gelu
          = more: shardwise explain SW112
        """
    )


def test_operands_without_a_known_origin_are_labelled_where_they_are_used():
    finding = Finding(
        "SW110",
        "y is a pending sum over tp, a varies",
        location=at(8, "y * a"),
        op="mul",
        axis="tp",
        operands=(Operand("y", "f32[4] {tp: P}", at(8, "y")), Operand("a", "f32[4] {tp: V}", at(8, "a"))),
    )
    assert shown(finding) == expect(
        """
        SW110 partial-meets-varying: y is a pending sum over tp, a varies
         --> model.py:8:12
          |
        8 |     return y * a * a + b + F.dropout(
          |            ^^^^^
          |            -   - a: f32[4] {tp: V}
          |            |
          |            y: f32[4] {tp: P}
          = more: shardwise explain SW110
        """
    )


def test_a_literal_that_the_message_names_is_underlined_without_repeating_it():
    finding = Finding(
        "SW113", "dropout adds 0.5", location=at(10, "p=0.5"), operands=(Operand("0.5", "0.5", at(10, "0.5")),)
    )
    assert shown(finding).splitlines()[3:6] == [
        "10 |         p=0.5,",
        "   |         ^^^^^ added once per rank",
        "   |           ---",
    ]


def test_one_expression_used_twice_is_marked_once():
    operands = [Operand("a", "f32[4] {tp: P}", at(8, "a", 0))] * 2
    finding = Finding(
        "SW111", "two pending sums", location=at(8, "a * a"), op="mul", axis="tp", operands=tuple(operands)
    )
    assert shown(finding) == expect(
        """
        SW111 product-of-partials: two pending sums
         --> model.py:8:16
          |
        8 |     return y * a * a + b + F.dropout(
          |                ^^^^^ the product of sums is not the sum of products
          |                - a: f32[4] {tp: P}
          = more: shardwise explain SW111
        """
    )


def test_other_files_facts_counts_and_placeless_operands():
    finding = Finding(
        "SW113",
        "b is added once per rank",
        location=at(8, "y * a * a + b"),
        op="add",
        axis="tp",
        operands=(
            Operand("b", "f32[4] {tp: R}", at(8, "b")),
            Operand("w", "f32[4] {tp: P}", None, (Hop("declared here", at(1, "assert_type", 0, "lib/other.py")),)),
            Operand("other", "f32[4] {tp: P}", None, (Hop("made here", SourceLocation("/gone/file.py", 3)),)),
            Operand("number", "2.0"),
        ),
        facts=("(p0 + b) + (p1 + b) = p + 2 b",),
        help=('all_reduce(w, "tp", src=P, dst=R) before add', "first line\nsecond line"),
        count=12,
    )
    assert shown(finding) == expect(
        """
        SW113 term-added-per-rank: b is added once per rank
         --> model.py:8:12
          |
        8 |     return y * a * a + b + F.dropout(
          |            ^^^^^^^^^^^^^ added once per rank
          |                        - b: f32[4] {tp: R}
         ::: lib/other.py:1:5
        1 | w = assert_type(w, {'tp': P})
          |     ----------- w: f32[4] {tp: P}, declared here
          = note: other: f32[4] {tp: P}, made here (/gone/file.py:3)
          = note: number: 2.0
          = note: (p0 + b) + (p1 + b) = p + 2 b
          = note: 12 times at this place
          = help: all_reduce(w, "tp", src=P, dst=R) before add
          = help: first line
                  second line
          = more: shardwise explain SW113
        """
    )


def test_a_call_over_several_lines_is_underlined_on_its_first_and_gaps_are_elided():
    call = SourceLocation(f"{ROOT}/model.py", 8, 11, 27, 5)
    finding = Finding(
        "SW121",
        "dropout draws different numbers",
        location=call,
        op="dropout",
        operands=(
            Operand("y", "f32[4] {tp: R}", at(9, "y"), (Hop("replicate since here", at(5, "self.norm(x)")),)),
            Operand("p", "0.5", at(10, "p=0.5")),
        ),
    )
    assert shown(finding) == expect(
        """
        SW121 unsynchronised-random: dropout draws different numbers
          --> model.py:8:28
           |
         5 |     x = self.norm(x)
           |         ------------ replicate since here; y follows from it
        ...
         8 |     return y * a * a + b + F.dropout(
           |                            ^^^^^^^^^^ draws different numbers on each rank
         9 |         y,
           |         - y: f32[4] {tp: R}
        10 |         p=0.5,
           |         ----- p: 0.5
           = more: shardwise explain SW121
        """
    )


def test_tabs_and_wide_characters_keep_the_marks_in_place():
    tabbed = Finding("SW110", "tab", location=at(12, "y * a"), operands=(Operand("a", "A", at(12, "a")),))
    wide = Finding("SW110", "wide", location=at(13, "界面 * a"), operands=(Operand("a", "A", at(13, "a")),))
    assert shown(tabbed).splitlines()[1:6] == [
        "  --> model.py:12:9",
        "   |",
        "12 |     return y * a",
        "   |            ^^^^^",
        "   |                - a: A",
    ]
    assert shown(wide).splitlines()[1:6] == [
        "  --> model.py:13:12",
        "   |",
        "13 |     grün = 界面 * a",
        "   |            ^^^^^^^^",
        "   |                   - a: A",
    ]


def test_a_long_line_is_trimmed_around_the_marks():
    finding = Finding("SW110", "long", location=at(1, "bad * worse", name="long.py"))
    lines = shown(finding, width=60).splitlines()
    assert lines[3:5] == [
        "1 | ... + before + bad * worse + after + after + after + ...",
        "  |                ^^^^^^^^^^^",
    ]
    assert max(map(len, lines[2:5])) <= 60
    at_start = Finding("SW110", "long", location=at(1, "value", name="long.py"))
    assert shown(at_start, width=40).splitlines()[3] == "1 | value = before + before + before ..."
    whole = Finding("SW110", "long", location=at(1, LONG.strip(), name="long.py"))
    assert shown(whole, width=40).splitlines()[4] == "  | " + "^" * 33


def test_a_label_that_does_not_fit_hangs_below_and_moves_left():
    finding = Finding(
        "SW110", "x", location=at(8, "b"), operands=(Operand("b", "f32[4, 1024] {dp: R, tp: V}", at(8, "b")),)
    )
    assert shown(finding, width=40).splitlines()[3:7] == [
        "8 |     return y * a * a + b + F.drop...",
        "  |                        ^",
        "  |                        -",
        "  |       b: f32[4, 1024] {dp: R, tp: V}",
    ]


def test_without_source_the_place_and_the_operands_are_still_told():
    finding = Finding(
        "SW110",
        "x",
        location=SourceLocation("<string>", 3, 3, 0, 4),
        operands=(Operand("a", "A", SourceLocation("<string>", 3, 3, 0, 1)),),
    )
    assert shown(finding) == expect(
        """
        SW110 partial-meets-varying: x
         --> <string>:3:1
          = note: a: A
          = more: shardwise explain SW110
        """
    )


def test_without_a_place_the_headline_stands_alone():
    assert shown(Finding("SW903", "bad")) == "SW903 bad-mesh: bad\n  = more: shardwise explain SW903"


def test_columns_missing_underlines_the_statement():
    finding = Finding("SW110", "x", location=SourceLocation(f"{ROOT}/model.py", 7))
    assert shown(finding).splitlines()[1:5] == [
        " --> model.py:7",
        "  |",
        "7 |     y = F.gelu(h)",
        "  |     ^^^^^^^^^^^^^",
    ]


def test_a_place_beyond_the_line_survives():
    finding = Finding("SW110", "x", location=SourceLocation(f"{ROOT}/model.py", 7, 7, 500, 510))
    assert shown(finding).splitlines()[3:5] == ["7 |     y = F.gelu(h)", "  |                  ^"]


def test_colour_only_on_request_and_without_changing_the_text():
    coloured = render(GELU, root=ROOT, width=100, color=True)
    assert "\x1b[" not in shown(GELU)
    assert coloured.startswith("\x1b[1;31mSW112 partial-sum-in-nonlinear-op\x1b[0m")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(GELU)


def test_escape_sequences_of_the_program_do_not_reach_the_terminal():
    finding = Finding("SW110", "x\x1b[2J", facts=("\x1b]0;title\x07",), operands=(Operand("a\x1b", "A"),))
    assert "\x1b" not in shown(finding)


class _Broken:
    def __repr__(self):
        raise ValueError("no")

    __str__ = __repr__


def test_broken_values_become_a_line_of_the_report():
    assert safe_repr(_Broken()) == "<_Broken whose repr raises ValueError>"
    assert safe_str(_Broken()) == "<_Broken whose str raises ValueError>"
    finding = Finding("SW110", _Broken(), location=at(7, "h"), operands=(Operand(_Broken(), _Broken(), at(7, "h")),))
    assert "<_Broken whose str raises ValueError>" in shown(finding)


@pytest.mark.parametrize(
    ("value", "limit", "expected"),
    [("ab", 80, "'ab'"), ("a\nb", 80, r"'a\nb'"), ("x" * 30, 11, "'xxx...xxx'"), (3, 80, "3")],
)
def test_safe_repr_is_one_line_of_limited_length(value, limit, expected):
    assert safe_repr(value, limit) == expected


@pytest.mark.parametrize(("text", "count"), [("abc", 3), ("界", 2), ("é", 1), ("e\u0301", 1), ("", 0)])
def test_cells_counts_terminal_columns(text, count):
    assert cells(text) == count


def test_half_of_a_wide_character_becomes_a_space():
    assert [window("a界b", 0, 2), window("a界b", 2, 4), window("a界b", 1, 3)] == ["a ", " b", "界"]


def test_cleaning_expands_tabs_and_shows_that_something_was_unprintable():
    assert clean("a\tb\x00") == "a   b\N{REPLACEMENT CHARACTER}"


WARNING = Finding("SW116", "ranks may branch differently", location=at(7, "h"), op="bool", axis="tp")


def test_a_run_ends_with_its_summary():
    result = RunResult(
        (GELU, WARNING),
        checked_ops=1234,
        unchecked_ops=5,
        no_rule_ops=(("fancy", 2), ("erfcx", 1)),
        trusted=(Noted("annotation of an input", at(5, "x"), 3), Noted("rule of MyKernel")),
        mesh="dp=2, tp=2",
    )
    text = render_result(result, root=ROOT, width=100)
    assert text.startswith(shown(GELU) + "\n\n" + shown(WARNING) + "\n\n")
    assert text.removeprefix(shown(GELU) + "\n\n" + shown(WARNING) + "\n\n") == expect(
        """
        operators without a rule: fancy (2 calls), erfcx (1 call)

        trusted, not proven:
          annotation of an input (model.py:5:5), 3 times
          rule of MyKernel

        1 error, 1 warning in 1 line; 1234 operations checked, 5 unchecked on mesh dp=2, tp=2
        """
    )


@pytest.mark.parametrize(
    ("result", "last_line"),
    [
        (RunResult(checked_ops=1), "clean; 1 operation checked"),
        (RunResult((WARNING,), checked_ops=9), "clean, 1 warning in 1 line; 9 operations checked"),
        (RunResult(), "no verdict; 0 operations checked"),
        (
            RunResult((GELU,), checked_ops=9, stopped=Stop(StopReason.INTERRUPTED)),
            "no verdict, 1 error in 1 line; 9 operations checked",
        ),
        (
            RunResult((GELU,), checked_ops=9, stopped=Stop(StopReason.SCRIPT_ERROR)),
            "1 error in 1 line; 9 operations checked",
        ),
    ],
)
def test_the_summary_says_the_verdict(result, last_line):
    assert render_result(result, root=ROOT).splitlines()[-1] == last_line


def test_a_crash_is_shown_after_what_was_found_before_it():
    stopped = Stop(StopReason.SCRIPT_ERROR, "ValueError: boom", at(7, "F.gelu(h)"))
    lines = render_result(RunResult((GELU,), checked_ops=2, stopped=stopped), root=ROOT).splitlines()
    crash = lines.index("SW910 script-error: the program raised ValueError: boom after 2 checked operations")
    assert crash > lines.index(shown(GELU).splitlines()[0])
    assert lines[crash + 1] == " --> model.py:7:9"


def test_one_policy_says_how_to_see_the_rest():
    findings = tuple(Finding("SW905", f"number {i}") for i in range(5))
    trusted = tuple(Noted(f"input {i}") for i in range(7))
    result = RunResult(findings, checked_ops=1, trusted=trusted, no_rule_ops=tuple((f"op{i}", 1) for i in range(12)))
    text = render_result(result, root=ROOT, limits=Limits(findings=4, trusted=2, no_rule_ops=10))
    assert "and 1 more finding; --all shows it" in text
    assert "and 5 more trusted entries; --all shows them" in text
    assert "and 2 more operators; --all shows them" in text
    assert "number 4" not in text
    everything = render_result(result, root=ROOT, limits=EVERYTHING)
    assert "--all" not in everything
    assert "number 4" in everything
    assert "input 6" in everything
    assert "op11" in everything


def test_nothing_left_out_says_nothing():
    assert rest(4, 4, "finding", "findings") is None
    assert rest(9, None, "finding", "findings") is None


def test_values_that_follow_from_one_place_share_its_label():
    hop = Hop("asserted here", at(10, "p=0.5"))
    operands = tuple(Operand(name, "f32[4] {tp: I}", at(8, name), (hop,)) for name in ("y", "a"))
    assert "asserted here; y, a follow from it" in shown(Finding("SW101", "x", at(8, "y * a"), operands=operands))


def test_where_several_values_are_made_is_said_once_for_all_of_them():
    hop = Hop("the gradient that arrived by this call", at(10, "p=0.5"))
    first, second = (Operand(f"{name}.grad", "f32[4] {dp: P}", None, (hop,)) for name in ("y", "a"))
    text = shown(Finding("SW608", "x", at(8, "y * a"), operands=(first, second, second)))
    assert "y.grad: f32[4] {dp: P}; a.grad: f32[4] {dp: P}, each the gradient that arrived by this call" in text
    text = shown(Finding("SW608", "x", at(8, "y * a"), operands=(first, first)))
    assert "y.grad: f32[4] {dp: P}, the gradient that arrived by this call" in text


def test_a_value_without_a_place_is_said_to_follow_from_what_does_not_name_it():
    operand = Operand("output 0", "f32[4] {tp: V}", None, (Hop("asserted here", at(10, "p=0.5")),))
    text = shown(Finding("SW140", "x", at(8, "y * a"), operands=(operand,)))
    assert "asserted here; output 0 follows from it" in text
    assert "= note: output 0: f32[4] {tp: V}" in text


def test_a_type_is_not_broken_between_rows_while_there_is_room():
    label = "weight.grad: f32[4, 8] {dp: R, tp: P}, the gradient that arrived by this call; bias.grad: f32[4] {dp: R}"
    found = Finding("SW608", "x", at(8, "y * a"), operands=(Operand("y", label, at(8, "y")),))
    rows = render(found, width=60).splitlines()
    assert all(row.count("{") == row.count("}") and row.count("[") == row.count("]") for row in rows)
    assert max(map(len, rows)) <= 60


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        (Coverage(), "most of what the program works on"),
        (Coverage(typed_parameters=1, parameters=2), "1 of 2 parameters"),
        (Coverage(typed_parameters=2, parameters=2), None),
    ],
    ids=["no modules", "some parameters", "all parameters"],
)
def test_what_an_inconclusive_run_lacks_is_told(coverage, said):
    result = RunResult(checked_ops=0 if coverage.has_modules else 1, unchecked_ops=5, coverage=coverage)
    told = [line for line in render_result(result, root=ROOT).splitlines() if line.startswith("without a type: ")]
    assert result.inconclusive
    assert [said in line for line in told] == ([True] if said else [])


def test_a_command_that_is_told_can_be_pasted_whatever_the_names_are():
    told = RunResult(script="my 'train'.py", mesh="<b>dp</b>=2, t p=2").command("infer")
    assert shlex.split(told) == ["shardwise", "infer", "my 'train'.py", "--mesh", "<b>dp</b>=2,t p=2"]
    told = RunResult(script="train.py", mesh="dp=2, tp=2").command("infer")
    assert told == "shardwise infer train.py --mesh dp=2,tp=2"
