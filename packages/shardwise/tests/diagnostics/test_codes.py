"""Every code is listed, emitted, explained and tested: this ties the four together."""

import json
import linecache
import re
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner

import shardwise
from shardwise.cli.main import main
from shardwise.diagnostics import explain
from shardwise.diagnostics.codes import CODES, Severity
from shardwise.diagnostics.errors import SpmdTypeError

SOURCE = Path(shardwise.__file__).parent
PAGES = SOURCE / "diagnostics" / "explain"
OF_THE_RUN = {"SW910", "SW911", "SW912"}
"""Codes that say how a run ended: no exception, so their programs run under ``shardwise check``."""
ACROSS_RANKS = [code for code in CODES if code.startswith("SW5")]
"""Codes about several ranks, whose programs are run on both of two."""
OF_VERIFY = {"SW310"}
"""Codes of what only ``shardwise verify`` looks at."""
OF_COMMANDS = {"SW920", "SW921", "SW922"}
"""Codes that only a command gives: about comments in the source, and what was asked for."""
SILENT = [code for code in CODES if code not in {*OF_THE_RUN, *ACROSS_RANKS, *OF_VERIFY, *OF_COMMANDS}]


def emitted():
    """Codes that the package's source uses, outside of the table itself and of what only describes codes."""
    aside = {SOURCE / "diagnostics" / name for name in ("codes.py", "text.py", "explain.py")}
    files = [path for path in SOURCE.rglob("*.py") if path not in aside]
    return {code for path in files for code in re.findall(r"\"(SW\d{3})\"", path.read_text(encoding="utf-8"))}


def marked_line(program: str, code: str) -> int:
    """The 1-based line that carries the trailing comment ``# SW###``."""
    (line,) = (at for at, line in enumerate(program.splitlines(), 1) if line.endswith(f"# {code}"))
    return line


def test_every_code_has_a_page_and_every_page_a_code():
    assert {path.stem for path in PAGES.glob("SW*.md")} == set(CODES)


def test_every_code_is_emitted_and_every_emitted_code_is_listed():
    assert emitted() == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_what_it_must(code):
    page = explain.page(code)
    assert page.text.startswith(f"# {code} {CODES[code].name}\n")
    assert page.sentence.endswith(".")
    assert "\n" not in page.sentence
    assert len(page.why) > 100
    assert re.search(r"\d|one|two", page.why), "the arithmetic on two ranks"
    assert marked_line(page.fails, code)
    assert "# SW" not in page.repaired
    assert max(map(len, page.text.splitlines())) <= 120


def test_names_are_offences_in_kebab_case_and_used_once():
    names = [code.name for code in CODES.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    leave_the_world()


def leave_the_world():
    if dist.is_initialized():
        dist.destroy_process_group()


def run(program, name):
    leave_the_world()  # the mesh of another page would be the program's own
    filename = f"<{name}>"
    linecache.cache[filename] = (len(program), None, program.splitlines(keepends=True), filename)
    try:
        exec(compile(program, filename, "exec"), {"__name__": "__main__"})
    finally:
        linecache.cache.pop(filename)


@pytest.mark.parametrize("code", SILENT)
def test_the_failing_program_is_reported_with_this_code_on_the_marked_line(code):
    program = explain.runnable(explain.page(code).fails)
    line = marked_line(program, code)
    if CODES[code].severity is Severity.WARNING:
        with pytest.warns(UserWarning, match=code) as caught:
            run(program, f"{code} fails")
        assert [type(warning.message).__name__ for warning in caught] == ["SpmdTypeWarning"]
        assert caught[0].lineno == line
        return
    with pytest.raises(SpmdTypeError) as raised:
        run(program, f"{code} fails")
    finding = raised.value.finding
    assert (finding.code, raised.value.code) == (code, code)
    assert (finding.location.file, finding.location.line) == (f"<{code} fails>", line)


@pytest.mark.parametrize("code", SILENT)
def test_the_repaired_program_passes(code):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # torch itself scripts the decompositions of forward mode when they are first needed
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        run(explain.runnable(explain.page(code).repaired), f"{code} repaired")


def check(program, folder, *options, world_size=4):
    """``shardwise check`` in this process: the exit code and the JSON report."""
    leave_the_world()
    script = folder / "train.py"
    script.write_text(program)
    command = ["check", "--world-size", str(world_size), "--format", "json", *options, str(script)]
    result = CliRunner().invoke(main, command)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("code", sorted(OF_THE_RUN))
def test_the_failing_program_ends_its_run_with_this_code(code, tmp_path):
    program = explain.runnable(explain.page(code).fails)
    exit_code, report = check(program, tmp_path)
    assert (exit_code, report["verdict"]) == (2, CODES[code].name)
    if report["stopped"] is not None:
        assert report["stopped"]["place"]["line"] == marked_line(program, code)


@pytest.mark.parametrize("code", sorted(OF_THE_RUN))
def test_the_repaired_program_ends_clean(code, tmp_path):
    exit_code, report = check(explain.runnable(explain.page(code).repaired), tmp_path)
    assert (exit_code, report["verdict"]) == (0, "clean")


@pytest.mark.parametrize("code", sorted(OF_COMMANDS))
def test_a_command_tells_it_of_the_failing_program_and_not_of_the_repaired_one(code, tmp_path):
    page = explain.page(code)
    found = check(page.fails, tmp_path)[1]["findings"]
    assert [(one["code"], one["place"]["line"]) for one in found] == [(code, marked_line(page.fails, code))]
    assert check(page.repaired, tmp_path)[1]["findings"] == []


@pytest.mark.processes
@pytest.mark.parametrize("code", sorted(OF_VERIFY))
def test_verify_refuses_the_failing_program_and_not_the_repaired_one(code, tmp_path):
    page = explain.page(code)
    script = tmp_path / "train.py"
    for program, expected in ((page.fails, [marked_line(page.fails, code)]), (page.repaired, [])):
        script.write_text("import torch\n\n" + program)
        command = ["verify", "--mesh", "dp=2", "--format", "json", str(script)]
        leave_the_world()
        report = json.loads(CliRunner().invoke(main, command).stdout)
        found = [one for one in report["types"]["findings"] if one["code"] == code]
        assert [one["place"]["line"] - 2 for one in found] == expected


@pytest.mark.processes
@pytest.mark.parametrize("code", ACROSS_RANKS)
def test_the_failing_program_is_refused_on_two_ranks_and_accepted_on_one(code, tmp_path):
    program = explain.page(code).fails
    assert check(program, tmp_path, world_size=2)[0] == 0
    exit_code, report = check(program, tmp_path, "--ranks", "all", world_size=2)
    (finding,) = report["findings"]
    assert (exit_code, finding["code"], finding["place"]["line"]) == (1, code, marked_line(program, code))


@pytest.mark.processes
@pytest.mark.parametrize("code", ACROSS_RANKS)
def test_the_repaired_program_is_clean_on_two_ranks(code, tmp_path):
    exit_code, report = check(explain.page(code).repaired, tmp_path, "--ranks", "all", world_size=2)
    assert (exit_code, report["verdict"], report["ranks"]) == (0, "clean", [0, 1])
