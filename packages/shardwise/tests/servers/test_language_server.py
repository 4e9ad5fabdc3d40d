"""The language server, talked to as an editor does."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from .editor import Editor

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

SCRIPT = """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from shardwise import P, R, all_reduce, assert_type
from layers import block

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
h = assert_type(torch.ones(4, 8), {"dp": R, "tp": P})
h = h * 2
größe = "𝄞"; y = torch.relu(h)
block(y)
"""
LAYERS = """\
import torch
from shardwise import *

def block(x):
    z = assert_type(torch.ones(4, 8), {"dp": R, "tp": R})
    one = torch.empty(2).normal_()
    also = one
    # typed under its other name
    assert_type(one, {"dp": R, "tp": R})
    return z + 1
"""
RIGHT = SCRIPT.replace("torch.relu(h)", "torch.neg(h)")


@pytest.fixture
def editor(tmp_path):
    started = []
    (tmp_path / "train.py").write_text(SCRIPT, "utf-8")
    (tmp_path / "layers.py").write_text(LAYERS, "utf-8")

    def start(**options):
        started.append(Editor(tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        one.process.stdin.close()
        one.process.stdout.close()


@pytest.mark.slow
def test_a_session_of_an_editor(editor):
    client = editor(script="train.py")
    assert client.until("shardwise/finished") == {"verdict": "findings", "exitCode": 1, "findings": 1}
    (found,) = client.diagnostics("train.py")
    assert found["code"] == "SW112"
    assert found["severity"] == 1
    assert found["message"].startswith("partial-sum-in-nonlinear-op: relu needs complete values, but h is still")
    assert '\nhelp: all_reduce(h, "tp", src=P, dst=R) before relu' in found["message"]
    # the line has a sign of two units of UTF-16 before the call
    assert found["range"] == {"start": {"line": 8, "character": 18}, "end": {"line": 8, "character": 31}}
    assert client.diagnostics("layers.py") is None

    client.open("train.py")
    client.open("layers.py")
    document = {"uri": (client.folder / "train.py").as_uri()}
    actions = client.ask(
        "textDocument/codeAction", textDocument=document, range=found["range"], context={"diagnostics": []}
    )
    assert actions[0]["title"].startswith('SW112 (choice 1 of 2): all_reduce(h, "tp", src=P, dst=R)')
    ((uri, edits),) = actions[0]["edit"]["changes"].items()
    assert uri == document["uri"]
    assert any('torch.relu(all_reduce(h, "tp", src=P, dst=R))' in edit["newText"] for edit in edits)

    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    hints = client.ask("textDocument/inlayHint", textDocument=document, range=whole)
    at = {(hint["position"]["line"], hint["position"]["character"]): hint["label"] for hint in hints}
    assert at[6, 1] == ": f32[4, 8] {dp: R, tp: P}"
    layers = {"uri": (client.folder / "layers.py").as_uri()}
    hints = client.ask("textDocument/inlayHint", textDocument=layers, range=whole)
    assert ": f32[4, 8] {dp: R, tp: R}" in [hint["label"] for hint in hints if hint["position"]["line"] == 4]
    labels = {(hint["position"]["line"], hint["label"]) for hint in hints}
    assert {(8, ": f32[2] {dp: R, tp: R}"), (8, "  also: f32[2] {dp: R, tp: R}")} <= labels

    hover = client.ask_at("hover", "train.py", 8, 29)["contents"]["value"]
    assert "h: f32[4, 8] {dp: R, tp: P}" in hover
    assert "[line 8]" in hover
    assert "[line 7]" in hover
    places = client.ask_at("definition", "train.py", 8, 29)
    assert [place["range"]["start"]["line"] for place in places][:1] in ([6], [7])
    assert client.ask_at("hover", "train.py", 5, 0) is None

    client.save("train.py", RIGHT)
    assert client.until("shardwise/finished")["verdict"] == "clean"
    assert client.diagnostics("train.py") == []
    assert client.end() == 0


@pytest.mark.slow
def test_what_was_found_stays_while_a_run_goes_on_and_an_outdated_run_says_nothing(editor):
    client = editor(script=["train.py"])
    client.until("shardwise/finished")
    client.open("train.py")
    client.save("train.py", "import time\ntime.sleep(1000)\n")
    time.sleep(1)
    hints = client.ask_at("hover", "train.py", 6, 0)  # answered while the run goes on
    assert hints is None or "h:" in hints["contents"]["value"]
    assert [found["code"] for found in client.diagnostics("train.py")] == ["SW112"]
    client.save("train.py", RIGHT)
    assert client.until("shardwise/finished")["verdict"] == "clean"


@pytest.mark.slow
def test_fixes_are_not_offered_for_text_that_has_changed_since(editor):
    client = editor(script="train.py")
    client.until("shardwise/finished")
    client.open("train.py")
    document = {"uri": (client.folder / "train.py").as_uri()}
    client.tell(
        "textDocument/didChange", textDocument={**document, "version": 2}, contentChanges=[{"text": "\n" + SCRIPT}]
    )
    line = {"start": {"line": 8, "character": 0}, "end": {"line": 9, "character": 0}}
    assert client.ask("textDocument/codeAction", textDocument=document, range=line, context={"diagnostics": []}) == []


@pytest.mark.slow
def test_the_project_says_which_script_and_how(editor, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.shardwise]\nscript = ['train.py']\nignore = ['SW112']\n")
    client = editor()
    assert client.until("shardwise/finished")["verdict"] == "clean"


@pytest.mark.slow
def test_a_program_that_crashes_is_shown_at_the_line(editor, tmp_path):
    (tmp_path / "layers.py").write_text(LAYERS.replace("return z + 1", "return z / nothing"))
    client = editor(script="train.py")
    client.until("shardwise/finished")
    (found,) = client.diagnostics("layers.py")
    assert found["code"] == "SW910"
    assert found["range"]["start"]["line"] == LAYERS.splitlines().index("    return z + 1")


def test_a_half_written_line_takes_no_types_away(editor):
    client = editor(script="train.py")
    client.until("shardwise/finished")
    client.open("train.py")

    def hints():
        document = {"uri": (client.folder / "train.py").as_uri()}
        lines = {"start": {"line": 0, "character": 0}, "end": {"line": 10, "character": 0}}
        return [one["label"] for one in client.ask("textDocument/inlayHint", textDocument=document, range=lines)]

    before = hints()
    client.save("train.py", SCRIPT + "z = torch.relu(\n")
    assert client.until("shardwise/finished")["verdict"] == "script-error"
    (found,) = client.diagnostics("train.py")
    assert found["code"] == "SW910"
    assert before
    assert hints() == before
    hover = client.ask_at("hover", "train.py", 7, 0)
    assert "h: f32[4, 8] {dp: R, tp: P}" in hover["contents"]["value"]
    client.save("train.py", RIGHT)
    assert client.until("shardwise/finished")["verdict"] == "clean"
    assert client.diagnostics("train.py") == []


def test_without_a_script_the_command_runs_a_file(editor):
    client = editor()
    client.tell("textDocument/didSave", textDocument={"uri": (client.folder / "train.py").as_uri()})
    assert "nothing says which script to run" in client.until("window/showMessage")["message"]
    uri = (client.folder / "train.py").as_uri()
    client.ask("workspace/executeCommand", command="shardwise.check", arguments=[uri])
    assert client.until("shardwise/finished")["verdict"] == "findings"


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scirpt": "train.py"}, "unknown option 'scirpt': known are script, options and python"),
        ({"script": 3}, "script is a list of words, got 3"),
        ({"script": "train.py", "options": ["--mehs", "tp=2"]}, "--mehs"),
        ({"script": "missing.py"}, "the script missing.py does not exist"),
        ({"script": "train.py", "python": "/no/such/python"}, "cannot start /no/such/python"),
    ],
)
def test_what_cannot_be_run_is_said(editor, options, said):
    assert said in editor(**options).until("window/showMessage")["message"]


@pytest.mark.slow
def test_of_a_text_that_is_no_file_of_the_run_nothing_is_said(editor):
    client = editor(script="train.py")
    client.until("shardwise/finished")
    start = {"line": 0, "character": 0}
    span = {"start": start, "end": {"line": 10**9, "character": 0}}
    for uri in ("untitled:Untitled-1", "git:/train.py?HEAD", "file:///no/such.py", "file:///%00", ""):
        document = {"uri": uri}
        asked = {"textDocument": document, "range": span}
        assert client.ask("textDocument/hover", textDocument=document, position=start) is None, uri
        assert client.ask("textDocument/definition", textDocument=document, position=start) == [], uri
        assert client.ask("textDocument/inlayHint", **asked) == [], uri
        assert client.ask("textDocument/codeAction", **asked, context={"diagnostics": []}) == [], uri


@pytest.mark.slow
def test_a_file_that_is_gone_has_lost_what_was_found_in_it(editor, tmp_path):
    client = editor(script="train.py")
    client.until("shardwise/finished")
    (tmp_path / "layers.py").unlink()
    assert client.ask_at("hover", "layers.py", 4, 4) is None
    client.tell("textDocument/didSave", textDocument={"uri": (tmp_path / "train.py").as_uri()})
    assert client.until("shardwise/finished")["verdict"] == "script-error"
    (found,) = client.diagnostics("train.py")
    assert "No module named 'layers'" in found["message"]


@pytest.mark.slow
def test_settings_are_read_again_when_they_are_saved(editor, tmp_path):
    client = editor()
    settings = tmp_path / "pyproject.toml"
    for text, verdict in (("script = 'train.py'\nignore = ['SW112']", "clean"), ("script = 'train.py'", "findings")):
        settings.write_text(f"[tool.shardwise]\n{text}\n")
        client.tell("textDocument/didSave", textDocument={"uri": settings.as_uri()})
        assert client.until("shardwise/finished")["verdict"] == verdict
    settings.write_text("[tool.shardwise]\nscirpt = 'train.py'\n")
    client.tell("textDocument/didSave", textDocument={"uri": settings.as_uri()})
    assert "unknown key 'scirpt'" in client.until("window/showMessage")["message"]


def test_without_the_package_the_command_says_what_to_install():
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pygls' else find(name, *a)\n"
        "from shardwise.cli.main import main; sys.argv = ['shardwise', 'lsp']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "shardwise lsp needs the package pygls: pip install 'shardwise[lsp]'" in done.stderr
