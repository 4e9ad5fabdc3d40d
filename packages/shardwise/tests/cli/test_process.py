"""What can only be seen from outside: Ctrl-C, the real standard streams, what is loaded at the start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shardwise

from .conftest import TYPED

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

REAL = sys.executable
"""Of tests that are about what is loaded, and of modules that are loaded anew in another process."""

A_MINUTE = "for _ in range(600): time.sleep(0.1)"
"""Python hears a signal that comes just before it begins to sleep when it has slept, so no sleep here is long."""
BROKEN_THEN_LONG = """
import time
with set_current_mesh(mesh):
    torch.relu(assert_type(torch.ones(2), {"dp": V, "tp": P}))
"""


def start(folder, *arguments):
    command = [sys.executable, "-m", "shardwise", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_while_the_command_is_loading_leaves_no_traceback():
    interrupted = "import sys\nclass Interrupted:\n    def find_spec(name, *_):\n        raise KeyboardInterrupt\n"
    start = "import shardwise.cli.start as it\nsys.meta_path.insert(0, Interrupted)\nit.main()\n"
    ended = subprocess.run([REAL, "-c", interrupted + start], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "shardwise: interrupted before anything was checked\n")


@pytest.mark.parametrize("swallowed", [False, True], ids=["not swallowed", "swallowed by the script"])
def test_ctrl_c_reports_what_was_found_until_then(project, swallowed):
    wait = f'print("ready", flush=True)\n{A_MINUTE}\n'
    if swallowed:
        wait = f"try:\n    {wait.replace(chr(10), chr(10) + '    ').rstrip()}\nexcept KeyboardInterrupt:\n    pass\n"
    project.write(TYPED + BROKEN_THEN_LONG + wait)
    with start(project.folder, "check", "train.py", "--format", "json") as process:
        try:
            assert process.stderr.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    report = json.loads(out)
    assert process.returncode == report["exit_code"] == 2, err
    assert [finding["code"] for finding in report["findings"]] == ["SW112"]
    assert report["stopped"]["reason"] == "interrupted"
    assert "Traceback" not in err


def test_only_the_report_reaches_stdout_whoever_writes(project):
    project.write("import os, subprocess\nos.write(1, b'raw ')\nsubprocess.run(['echo', 'child'], check=True)\n")
    with start(project.folder, "check", "train.py", "--format", "json") as process:
        out, err = process.communicate(timeout=60)
    assert json.loads(out)["exit_code"] == process.returncode == 2
    assert "raw child" in err


def test_the_command_starts_without_torch(project):
    code = "import sys; from shardwise.cli.main import main\ntry:\n main(['--version'])\nexcept SystemExit: pass\n"
    code += "import shardwise.cli.check, shardwise.cli.explain\nprint('torch' in sys.modules, 'rich' in sys.modules)"
    out = subprocess.run([REAL, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [f"shardwise {shardwise.__version__}", "False False"]


def test_modules_of_the_program_do_not_stand_in_for_ours(project):
    for name in ("click.py", "rich.py", "torch.py"):
        project.write("raise ImportError('the program has this name too')\n", name)
    project.write("print('run')\n")
    with start(project.folder, "check", "train.py") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, "run\n" in err) == (2, True), err
    assert "SW911 nothing-checked" in out


WAITING = f"""
import os, time
print("ready", os.getpid(), flush=True)
{A_MINUTE}
"""
RANKS_WAITING = f"""
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("ready", os.getpid(), flush=True)
if dist.get_world_size() > 1:
    {A_MINUTE}
"""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.abort()", "died of SIGABRT"),
        ("ctypes.string_at(0)", "died of SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "died of SIGKILL"),
        ("ctypes.CDLL(None).exit(0)", "left its process with exit code 0, past Python"),
        ("ctypes.CDLL(None)._exit(7)", "left its process with exit code 7, past Python"),
        ("os.closerange(3, 64)\nos.abort()", "died of SIGABRT"),
    ],
)
def test_a_program_that_takes_its_process_with_it_is_no_clean_one_and_leaves_what_was_found(project, end, how):
    source = TYPED + BROKEN_THEN_LONG + f"import ctypes, os\n{end}\n"
    project.write(source)
    with start(project.folder, "check", "train.py", "--format", "json") as process:
        out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 2, err
    assert [finding["code"] for finding in report["findings"]] == ["SW112"]
    assert report["stopped"]["text"] == f"nothing, but {how}"
    crashed = report["stopped"]["place"]
    assert (crashed and crashed["line"]) == (len(source.splitlines()) if "SIGABRT" in how or "SIGSEGV" in how else None)


def test_cost_of_a_program_that_leaves_its_process_is_an_error_and_no_silence(project):
    project.write(TYPED + "import ctypes\nctypes.CDLL(None).exit(0)\n")
    with start(project.folder, "cost", "train.py", "--mesh", "dp=2,tp=4") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "left its process with exit code 0, past Python" in err


@pytest.mark.slow
def test_threads_that_the_program_leaves_running_do_not_keep_the_command(project):
    project.write(TYPED + BROKEN_THEN_LONG + "import threading, time\n"
                  "threading.Thread(target=time.sleep, args=(600,), name='pump').start()\n")  # fmt: skip
    with start(project.folder, "check", "train.py") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SW112" in out
    assert "threads that the program has left running: pump" in err


def processes_of(folder):
    """The processes of the machine whose working folder it is."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.path.samefile(entry / "cwd", folder):
                found.add(int(entry.name))
    return found


@pytest.mark.slow_but_one_in(4)
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize(
    "words",
    [("check",), ("check", "--world-size", "2", "--ranks", "all"), ("verify", "--mesh", "dp=2")],
    ids=["check", "ranks", "verify"],
)
def test_a_command_that_is_ended_leaves_no_process_and_no_file(project, tmp_path_factory, monkeypatch, words, number):
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))  # torch keeps its own
    project.write(WAITING if words == ("check",) else RANKS_WAITING)
    command, *options = words
    with start(project.folder, command, "train.py", *options) as process:
        try:
            while not process.stderr.readline().startswith("ready"):
                assert process.poll() is None
            process.send_signal(number)
            process.communicate(timeout=30)
        finally:
            process.kill()
    deadline = time.monotonic() + 20
    while processes_of(project.folder) - {os.getpid()} and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(project.folder) - {os.getpid()} == set()
    assert list(scratch.iterdir()) == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(
    "words", [("check", "--world-size", "2", "--ranks", "all"), ("verify", "--mesh", "dp=2")], ids=["ranks", "verify"]
)
def test_a_command_that_is_ended_as_it_starts_its_ranks_leaves_no_file_and_no_verdict(
    project, tmp_path_factory, monkeypatch, words, number
):
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background ignore it
    project.write(RANKS_WAITING)
    command, *options = words
    try:
        with start(project.folder, command, "train.py", *options) as process:
            try:
                while process.poll() is None and not list(scratch.glob("shardwise-*")):
                    time.sleep(0.01)
                process.send_signal(number)
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.returncode == 2, err
    assert list(scratch.iterdir()) == []


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("server", ["lsp", "mcp"])
def test_a_server_that_is_ended_says_nothing(tmp_path, server):
    command = [sys.executable, "-m", "shardwise", server]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(3)  # it serves; while it loads it ends as any command
            process.terminate()
            process.wait(timeout=60)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


POOL = """
import os, sys, time
from shardwise.host.worker_pool import worker_pool

def work():
    print(os.getpid(), flush=True)
    time.sleep(60 if sys.argv[2] == "busy" else 0)

if __name__ == "__main__":
    with worker_pool(1, sys.argv[1]) as pool:
        pool.submit(work).result()
        time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("state", ["busy", "idle"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_with_the_process_that_has_started_them(tmp_path, method, state):
    (tmp_path / "pool.py").write_text(POOL)
    command = [REAL, "pool.py", method, state]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 20
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert worker not in processes_of(tmp_path)


def test_output_that_nobody_reads_is_no_finding(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "shardwise", "explain", "SW112"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), complaints) == (2, "")


def test_a_reader_that_has_gone_is_not_taken_for_a_finding():
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        command = [sys.executable, "-m", "shardwise", "explain", "SW113"]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, "")
