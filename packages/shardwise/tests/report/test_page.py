"""The report as a file: all that a run has is on it, nothing of it is markup, and large runs stay small."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardwise.diagnostics.coverage import Coverage
from shardwise.diagnostics.finding import render
from shardwise.diagnostics.printing.limits import EVERYTHING
from shardwise.diagnostics.result import Noted, RunResult
from shardwise.diagnostics.run_record import AssumedLink, CostedCall, ModuleTypes, NamedTypes
from shardwise.report.module_tree import module_tree
from shardwise.report.page import NumbersSection, report_page
from shardwise.report.traffic import MOST_BARS, by_axis, by_line, link_text, timeline

from .pages import ATTACKS, hostile, large

VOID = {"meta", "link", "img", "input", "br", "col", "rect"}


class Elements(HTMLParser):
    """The elements of a page, their attributes, and whether each is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = [], [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(name, value) for name, value in attributes]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_each_thing_that_is_not_judged_is_a_sentence():
    losses = (
        "the loss (train.py:3:1), which rests on parameters without a type",
        "the scale of the loss (train.py:5:1)",
    )
    coverage = Coverage(typed_parameters=1, parameters=1, unjudged_losses=losses)
    shown = " ".join("".join(Elements(report_page(RunResult(checked_ops=1, coverage=coverage))).text).split())
    assert f"Not judged: {losses[0]}. Not judged: {losses[1]}. " in shown


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_no_text_of_a_program_becomes_markup(attack):
    page = report_page(
        hostile(attack).result, root="/project", numbers=NumbersSection(attack, "error", (Noted(attack),))
    )
    calm = report_page(
        hostile("calm").result, root="/project", numbers=NumbersSection("calm", "error", (Noted("calm"),))
    )
    elements, expected = Elements(page), Elements(calm)
    assert sorted(set(elements.tags)) == sorted(set(expected.tags))
    assert not {name for name, _ in elements.attributes} - {name for name, _ in expected.attributes}
    assert elements.tags.count("script") == 1
    assert not any(character in page for character in "\u202e\u2066\u2028\u2029\x00\x1b\ud800")
    page.encode("utf-8")


def test_nothing_is_fetched_and_only_its_own_script_may_run():
    page = report_page(large(2))
    elements = Elements(page)
    policy = next(value for name, value in elements.attributes if value and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert [
        value for name, value in elements.attributes if name == "src" and not value.startswith("data:image/svg")
    ] == []
    assert [value for name, value in elements.attributes if name == "href" and not value.startswith("#")] == []
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name == "style"]


def test_wrong_numbers_stand_at_their_line_and_lead_to_the_list():
    result = hostile("calm").result
    where = result.findings[0].location
    wrong = (Noted("the loss differs", where), Noted("a gradient differs", where), Noted("another differs"))
    page = report_page(result, root="/project", numbers=NumbersSection("3 disagreements", "error", wrong))
    row = page.partition('<a href="#number-1">numbers</a>')[2].partition("</tr>")[0]
    assert "the loss differs" in row
    assert "and 1 more here" in row
    assert 'id="number-3"' in page
    assert "Numbers <span" in page
    assert "#number-" not in report_page(result, root="/project", numbers=NumbersSection("clean", "good"))


def test_a_finding_has_the_colours_of_a_terminal_and_its_text():
    result = hostile("calm").result
    page = report_page(result, root="/project")
    for kind, width in (("narrow", 42), ("wide", 110)):
        card = re.search(rf'<pre class="{kind}"[^>]*>(.*?)</pre>', page, re.DOTALL)[1]
        told = html.unescape(re.sub(r"<[^>]+>", "", card)).rstrip()
        assert told == render(result.findings[0], width=width, root="/project", limits=EVERYTHING).partition("\n")[2]
    used = set(re.findall(r'class="ink-([\w-]+)"', card))
    assert {"primary", "gutter"} <= used
    assert all(f".ink-{kind}" in page for kind in used)


def test_every_link_on_the_page_leads_somewhere():
    elements = Elements(report_page(hostile("calm").result, root="/project"))
    names = {value for name, value in elements.attributes if name == "id"}
    links = {value.removeprefix("#") for name, value in elements.attributes if name == "href"}
    assert links
    assert links <= names


def test_ids_are_unique():
    elements = Elements(report_page(large(3)))
    names = [value for name, value in elements.attributes if name == "id"]
    assert len(names) == len(set(names))


def test_all_that_a_run_has_is_on_the_page(project):
    source = """
    with set_current_mesh(mesh):
        model = torch.nn.Linear(8, 16)
        x = assert_type(torch.randn(6, 8), {"dp": V, "tp": P})
        h = torch.relu(x)
        y = all_reduce(x, "tp", src=P, dst=R)
        z = model(y)
    """
    file = project.write(source, typed=True)
    result = project.check(file, "--html", "report.html", "--mesh", "dp=2,tp=4")
    assert result.exit_code == 1
    text = " ".join(" ".join(Elements(Path("report.html").read_text("utf-8")).text).split())
    for part in (
        "1 error; ",
        "SW112 partial-sum-in-nonlinear-op",
        "relu needs complete values",
        "y : f32[6, 8] {dp: V, tp: R}",
        "Linear",
        "weight : f32[16, 8] {}",
        "all_reduce(sum)",
        "P->R",
        "assert_type train.py:",
        "Without a type: 2 of 2 parameters",
        "--write puts their types into the source",
    ):
        assert part in text, part
    assert "1 finding" in text


def test_a_file_that_cannot_be_written_is_a_usage_error(project):
    result = project.check_source("x = 1\n", "--html", "no/such/folder/report.html")
    assert result.exit_code == 2
    assert "no/such/folder/report.html" in result.output
    assert "Traceback" not in result.output


def test_a_run_of_nothing_has_a_page():
    text = report_page(RunResult())
    assert "No line of the program has a type." in text
    assert "The program has called no module." in text
    assert "The program makes no mesh with named axes, and no --mesh was given." in text


def test_a_model_of_126_layers_stays_small():
    result = large(126)
    page = report_page(result)
    assert len(page) < 1_000_000
    assert "126 alike" in page
    assert page.count("<rect") <= 2 * MOST_BARS
    assert "lines without types" in page


def test_layers_that_differ_are_not_made_one():
    x, other = (NamedTypes("x", (("f32[4]", 1),)),), (NamedTypes("x", (("f32[8]", 1),)),)
    modules = [ModuleTypes(f"M.layers.{at}", "Layer", other if at == 3 else x) for at in range(6)]
    (top,) = module_tree([ModuleTypes("M", "M"), *modules])
    (layers,) = top.children
    assert [(one.name, one.alike) for one in layers.children] == [("0 to 2", 3), ("3", 1), ("4 to 5", 2)]


CALLS = [
    CostedCall("all_reduce", "tp", (0, 1), 0, "f32[4]", "sum", "P->R", 2, 16, 3e-6),
    CostedCall("all_gather", "dp", (0, 2), 0, "f32[4]", "", "", 1, 8, 1e-6),
    CostedCall("all_reduce", "tp", (0, 1), 0, "f32[4]", "sum", "P->R", 2, 16, 4e-6),
]


def test_traffic_adds_up():
    assert [(one.axis, one.what, one.calls, one.bytes) for one in by_axis(CALLS)] == [
        ("tp", "all_reduce(sum)", 2, 32),
        ("dp", "all_gather", 1, 8),
    ]
    assert [one.calls for one in by_line(CALLS)] == [2, 1]
    chart = timeline(CALLS)
    assert chart.axes == ("tp", "dp")
    assert [round(bar.x) for bar in chart.bars] == [0, 375, 500]
    assert chart.seconds == pytest.approx(8e-6)


def test_a_timeline_joins_what_is_too_narrow_and_loses_nothing():
    many = CALLS * 2000
    chart = timeline(many)
    assert len(chart.bars) <= MOST_BARS * 3
    assert sum(bar.calls for bar in chart.bars) == len(many)
    assert sum(bar.bytes for bar in chart.bars) == sum(call.bytes for call in many)


def test_what_times_rest_on_is_told():
    assert link_text(AssumedLink("tp", 3e-6, 3e11, "assumed")) == "tp: 300 GB/s, 3 us a message (assumed)"


def test_the_pages_own_files_name_no_address():
    folder = Path(report_page.__code__.co_filename).parent
    for path in [*folder.glob("assets/*"), *folder.glob("templates/*")]:
        assert not re.search(r"https?://", path.read_text("utf-8")), path.name
