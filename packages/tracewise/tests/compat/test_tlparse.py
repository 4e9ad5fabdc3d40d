"""The layout for scripts: names, numbers and marks as tlparse 0.4.3 gave them for the same logs (expected.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..command import run_command
from ..golden import facts, golden
from ..reports import rank_logs
from ..writing import Writer, artifact, ids, record

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


@pytest.fixture
def parsed(tmp_path, capsys):
    """The output folder for a log, and what was printed to stderr."""

    def run(log: bytes, *options: str, status: int = 0):
        path = tmp_path / "a.log"
        path.write_bytes(log)
        found, _, err = run_command(capsys, "tlparse", path, "-o", tmp_path / "out", "--no-browser", *options)
        assert found == status, err
        return tmp_path / "out", err

    return run


def entry(value) -> dict:
    """One expected file: an address alone has the number in its name and no mark."""
    url, number, suffix, readable = value if isinstance(value, list) else (value, None, "", None)
    if number is None:
        number = int(url.rpartition("_")[2].partition(".")[0])
    return {
        "url": url,
        "name": url.rpartition("/")[2],
        "number": number,
        "suffix": suffix,
        "readable_url": readable or None,
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_the_directory_is_that_of_the_reference(parsed, name):
    out, _ = parsed(golden(name))
    directory = json.loads((out / "compile_directory.json").read_text())
    assert directory == {id: {"artifacts": [entry(v) for v in values]} for id, values in EXPECTED[name].items()}
    for artifacts in directory.values():
        for item in artifacts["artifacts"]:
            assert (out / item["url"]).is_file()
            assert item["readable_url"] is None or (out / item["readable_url"]).is_file()


@pytest.mark.parametrize("name", ["basic-break", "export-checked"])
def test_raw_has_each_record_once_with_the_file_of_its_payload(parsed, name):
    out, err = parsed(golden(name))
    table, *lines = [json.loads(line) for line in (out / "raw.jsonl").read_text().splitlines()]
    kinds = facts(name).kinds
    assert len(table["string_table"]) == kinds["str"]
    assert len(lines) == sum(count for kind, count in kinds.items() if kind not in ("str", "chromium_event"))
    for line in lines:
        assert {"timestamp", "thread", "pathname", "lineno"} <= line.keys()
        assert ("has_payload" in line) <= ("payload_filename" in line)
        if "payload_filename" in line:
            assert (out / line["payload_filename"]).is_file()
    assert len(json.loads((out / "chromium_events.json").read_text())) == kinds["chromium_event"]
    assert err.strip() == f"Stats {{ ok: {sum(kinds.values())} }}"


def test_texts_are_the_payloads(parsed):
    graph = "def forward(self):\n\n    return ()\n"
    out, _ = parsed(Writer().compilation(inside=(record({"dynamo_output_graph": {}, **ids()}, graph),)).data)
    assert (out / "-_0_0_0" / "dynamo_output_graph_0.txt").read_text() == graph
    assert (out / "index.html").is_file()


def test_names_of_the_log_stay_inside(parsed, tmp_path):
    hostile = ["../../../escaped", "a/b", "CON", "<script>", "x" * 300, "", "..", "a\0b"]
    inside = tuple(artifact(name, "text", **ids()) for name in hostile)
    more = (
        record({"inductor_output_code": {"filename": "../../evil.py"}, **ids()}, "code"),
        record({"dump_file": {"name": "../../../<eval>"}, **ids()}, "code"),
        record({"graph_dump": {"name": "/etc/passwd"}, **ids()}, "code"),
    )
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "out")}
    out, _ = parsed(Writer().compilation(inside=inside + more).data)
    after = {path for path in tmp_path.rglob("*") if not path.is_relative_to(out)}
    assert after - before == {tmp_path / "a.log"}
    (artifacts,) = [v["artifacts"] for k, v in json.loads((out / "compile_directory.json").read_text()).items()]
    assert artifacts[0]["name"] == "../../../escaped_0.txt"
    assert artifacts[0]["url"] == "-_0_0_0/_.._.._escaped_0.txt"
    assert "<script>" not in (out / "failures_and_restarts.html").read_text()


def test_plain_text_gives_code_as_text(parsed):
    out, _ = parsed(golden("basic-infer"), "-p")
    assert [path.suffix for path in (out / "-_0_0_0").glob("inductor_output_code_*")] == [".txt"]


def test_export_writes_the_guards_as_files(parsed):
    out, _ = parsed(golden("export-checked"), "-e")
    urls = [a["url"] for v in json.loads((out / "compile_directory.json").read_text()).values() for a in v["artifacts"]]
    assert any("symbolic_guard_information" in url for url in urls)
    assert any("exported_program" in url for url in urls)


def test_strict_is_about_what_was_not_understood(parsed):
    damaged = golden("basic-infer").replace(b'{"dynamo_start"', b'{dynamo_start"', 1)
    assert "fail_json: 1" in parsed(damaged, "--strict", status=1)[1]


def test_strict_passes_a_sound_log(parsed):
    parsed(golden("basic-infer"), "--strict", "--strict-compile-id")


def test_all_ranks_have_a_folder_each(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    for name, data in rank_logs("shape").items():
        (tmp_path / "logs" / name).write_bytes(data)
    out = tmp_path / "out"
    status, _, err = run_command(capsys, "tlparse", tmp_path / "logs", "--all-ranks-html", "-o", out, "--no-browser")
    assert status == 0, err
    for rank in (0, 1):
        folder = out / f"rank_{rank}"
        assert {"index.html", "raw.jsonl", "compile_directory.json"} <= {path.name for path in folder.iterdir()}
        assert json.loads((folder / "collectives_parity.json").read_text())["graphs"] == []
    assert {event["pid"] for event in json.loads((out / "chromium_events.json").read_text())} == {0, 1}
    schedules = json.loads((out / "collective_schedules.json").read_text())
    assert [(s["rank"], s["graph"], len(s["ops"])) for s in schedules] == [(0, "-_0_0_0", 4), (1, "-_0_0_0", 4)]


def test_several_logs_need_a_word_on_which(tmp_path, capsys):
    for name, data in rank_logs("none").items():
        (tmp_path / name).write_bytes(data)
    status, _, err = run_command(capsys, "tlparse", tmp_path, "-o", tmp_path / "out", "--no-browser")
    assert status == 2
    assert "2 logs; give one of them, --latest or --all-ranks-html" in err
    status, _, _ = run_command(capsys, "tlparse", tmp_path, "--latest", "-o", tmp_path / "out", "--no-browser")
    assert status == 0
