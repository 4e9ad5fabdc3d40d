"""The report of real logs: whole, without dead links, readable by ear, and equal to the answers."""

from __future__ import annotations

import json
import re

import pytest

from tracewise.read.archive import InputError
from tracewise.report.folder import MARKER, OutputFolder, new_folder, safe_name
from tracewise.report.html import duration, escape_text, http_url, json_script, size

from .golden import NAMES, facts, golden
from .pages import PageFacts, pages_of
from .reports import rank_logs, report_of
from .test_log import CLOCK
from .writing import Writer, artifact, event, ids, record


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", NAMES)
def test_the_pages_of_a_real_log_are_whole(tmp_path, name):
    out, answers = report_of(golden(name), tmp_path)
    assert [(page.path.name, page.complaints) for page in pages_of(out) if page.complaints] == []
    assert len(list((out / "c").rglob("*.html"))) >= len(answers.run.compilations)


def test_the_overview_says_the_numbers_of_the_answers(tmp_path):
    out, answers = report_of(golden("basic-break"), tmp_path)
    page = PageFacts(out / "index.html")
    text = " ".join("".join(page.text_of[0]).split())
    told = json.loads((out / "data/run.json").read_bytes())
    assert f"3 functions compiled 3 times in {duration(told['compile_us'])}; 2 problems; 0 recompilations." in text
    assert [p["headline"] for p in told["problems"]] == [problem.headline for problem in answers.problems]
    assert told["compile_us"] == facts("basic-break").compile_us


def test_each_distinct_payload_has_one_page(tmp_path):
    out, _ = report_of(golden("basic-break"), tmp_path)
    log = golden("basic-break").decode()
    heads = [line for line in log.split("\n") if line.startswith("V") and '"chromium_event"' not in line]
    checksums = set(re.findall(r'"has_payload": "([0-9a-f]{32})"', "\n".join(heads)))
    assert {path.stem for path in (out / "p").rglob("*.html")} == checksums


def test_ranks_have_a_page_and_one_process_has_none(tmp_path):
    out, _ = report_of(rank_logs("shape"), tmp_path / "two")
    assert (out / "ranks.html").is_file()
    assert [page.complaints for page in pages_of(out) if page.complaints] == []
    out, _ = report_of(golden("basic-simple"), tmp_path / "one")
    assert not (out / "ranks.html").exists()


def test_the_trace_for_perfetto_is_nested(tmp_path):
    out, _ = report_of(golden("basic-simple"), tmp_path)
    trace = json.loads((out / "data/trace.json").read_bytes())
    spans = [entry for entry in trace["traceEvents"] if entry["ph"] == "X"]
    assert {entry["ph"] for entry in trace["traceEvents"]} == {"M", "X"}
    assert all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
    open_until: dict[tuple[int, int], list[float]] = {}
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        ends = open_until.setdefault((span["pid"], span["tid"]), [])
        while ends and ends[-1] <= span["ts"]:
            ends.pop()
        # Begin and end are rounded to a quarter of a microsecond on their own.
        assert not ends or span["ts"] + span["dur"] <= ends[-1] + 1
        ends.append(span["ts"] + span["dur"])


def test_what_was_not_understood_is_on_the_overview(tmp_path):
    log = golden("basic-fail") + record({"something_new": {}}, second=5 * 3600)
    out, answers = report_of(log, tmp_path)
    assert not answers.is_clean
    text = (out / "index.html").read_text()
    assert "could not be understood" in text
    assert "unknown kind 1" in text
    assert "something_new" in (out / "health.html").read_text()


def test_a_compilation_that_never_ended_is_named_with_its_phase(tmp_path):
    start = Writer().compilation("warm")
    log = start.data + event("dynamo", "B", 2, frame=1) + event("inductor_compile", "B", 3, frame=1)
    out, answers = report_of(log, tmp_path)
    assert answers.unfinished == 1
    assert "<code>inductor_compile</code>" in (out / "index.html").read_text()


def test_a_sound_export_needs_a_clean_log(tmp_path):
    program = record({"exported_program": {}}, "ExportedProgram:", second=2)
    out, answers = report_of(CLOCK + record({"export": {}}, "start!", second=1) + program, tmp_path / "clean")
    assert answers.export is not None
    assert answers.export.verdict == "sound"
    assert "This export is sound" in (out / "export.html").read_text()
    damaged = CLOCK + record({"export": {}}, "start!", second=1) + program + b"\tstray\n"
    out, answers = report_of(damaged, tmp_path / "damaged")
    assert answers.export is not None
    assert answers.export.verdict == "no verdict"
    _, answers = report_of(golden("export-kernels"), tmp_path / "bad")
    assert answers.export is not None
    assert answers.export.verdict == "not sound"


def test_a_long_text_is_cut_with_the_whole_beside_it(tmp_path):
    text = "line of text\n" * 300_000
    out, _ = report_of(CLOCK + artifact("long", text, **ids(), second=1), tmp_path)
    (page,) = [page for page in pages_of(out) if "p" in page.path.parts]
    assert page.complaints == []
    assert page.path.stat().st_size < 2_100_000
    assert page.path.with_suffix(".txt").read_text() == text


@pytest.mark.slow
def test_the_overview_stays_small_for_many_compilations(tmp_path):
    log = Writer()
    for frame in range(1000):
        log.compilation(f"function_{frame}", frame=frame, seconds=0.01)
    out, _ = report_of(log.data, tmp_path)
    page = PageFacts(out / "index.html")
    assert (out / "index.html").stat().st_size < 300_000
    assert len(page.tags) < 3000
    assert len(PageFacts(out / "frames.html").tags) < 12_000


NOT_OURS = {
    "a file": lambda path: path.write_text("x"),
    "a folder of others": lambda path: (path.mkdir(), (path / "thesis.tex").write_text("x")),
    "a link": lambda path: path.symlink_to(path.parent),
}


@pytest.mark.parametrize("what", NOT_OURS)
def test_what_is_not_ours_is_never_written_over(tmp_path, what):
    target = tmp_path / "out"
    NOT_OURS[what](target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="out: "), new_folder(target, overwrite=True):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_a_report_of_ours_is_replaced_when_asked_for(tmp_path):
    target = tmp_path / "out"
    for text in (b"1", b"2"):
        with new_folder(target, overwrite=True) as folder:
            folder.write("a.html", text)
    assert (target / "a.html").read_bytes() == b"2"
    with pytest.raises(InputError, match="exists"), new_folder(target, overwrite=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_report_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), new_folder(tmp_path / "out", overwrite=False):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "", ".", "..", "a\\b", "a\0b", "CON", "x" * 300])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="not made of safe names"):
        OutputFolder(tmp_path).write(name, b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", "/etc/passwd", "a\\b", "nul.txt", "é" * 300, "", "CON", ".hidden", "a b"])
def test_any_name_can_be_made_safe(tmp_path, name):
    safe = safe_name(name)
    assert safe == safe_name(safe)
    OutputFolder(tmp_path).write(safe, b"x")
    assert len(list(tmp_path.iterdir())) == 1
    assert safe != MARKER


def test_only_http_becomes_a_link():
    assert http_url("https://example.org/a?b=c") == "https://example.org/a?b=c"
    for url in (
        "javascript:alert(1)",
        "data:text/html,x",
        "https://",
        "https://a b",
        " https://a",
        "//a",
        "https://a/'x",
        3,
    ):
        assert http_url(url) == ""


def test_values_are_written_in_words():
    assert [duration(us) for us in (None, 5, 1500, 2.5e6, 61e6)] == ["—", "5 µs", "1.5 ms", "2.50 s", "1 min 1 s"]
    assert [size(n) for n in (None, 0, 1500, 2_500_000)] == ["—", "0 B", "1.5 kB", "2.5 MB"]
    assert escape_text("<a>&\u202e\ud800") == "&lt;a&gt;&amp;&lt;U+202E&gt;\ufffd"
    assert "</" not in json_script({"a": "</script>\u2028"})
