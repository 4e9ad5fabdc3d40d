"""Programs that do to their process what programs do: each has a clear outcome, and none is taken for our failure."""

from __future__ import annotations

import cProfile
import os
import signal
import sys

import pytest

CLEAN = """
import os, sys
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": P})
    torch.relu(all_reduce(x, "tp", dst=R))
"""
MISTAKE = """
with set_current_mesh(mesh):
    torch.relu(x)
"""


def outcome(project, source):
    """Exit code and report of a program that begins like a right one."""
    result = project.check_source(f"{CLEAN}\n{source}\n")
    assert "failure of shardwise" not in result.stderr + result.stdout
    assert "no verdict" in result.stdout or result.exit_code != 2
    return result.exit_code, result.stdout


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class Halt(BaseException): pass\nraise Halt('enough')", "the program raised Halt: enough"),
        ("raise GeneratorExit", "the program raised GeneratorExit"),
        ("raise StopIteration", "the program raised StopIteration"),
        ("raise MemoryError", "the program raised MemoryError"),
        ("raise ExceptionGroup('several', [ValueError(1)])", "the program raised ExceptionGroup: several"),
        ("class Mute(Exception):\n    def __str__(self): 1 / 0\nraise Mute", "an exception that cannot be printed"),
        ("def f(): f()\nf()", "the program raised RecursionError: maximum"),
        (
            "def f(a): return f(a + 1)\nf(torch.ones(1))",
            "the program raised RecursionError: maximum recursion depth exceeded",
        ),
        (
            "sys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)",
            "the program raised RecursionError: maximum recursion depth exceeded",
        ),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("sys.exit(x)", "the program raised SystemExit(tensor("),
        ("sys.exit(10**40)", "the program raised SystemExit(1000"),
        ("os._exit(3)", "the program raised SystemExit(3)"),
        ("import atexit\natexit.register(sys.exit, 5)", "the program raised SystemExit(5)"),
        ("import atexit\n@atexit.register\ndef late(): raise ValueError('late')", "ValueError: late"),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--nope'])", "the program raised SystemExit(2)"),
    ],
)
def test_a_program_that_ends_badly_exits_2_and_says_how(project, source, said):
    code, report = outcome(project, source)
    assert code == 2
    assert "SW910 script-error" in report
    assert said in report


@pytest.mark.parametrize(
    "source",
    [
        "import argparse\nargparse.ArgumentParser().parse_args(['--help'])",
        "print('z' * 10_000_000)",
        "sys.stdout = None; print(3)",
        "import io\nsys.stdout = io.StringIO(); print('hello')",
        "import io\nsys.stdin = io.StringIO(''); sys.stdin.read()",
        "set_current_mesh(mesh).__enter__()",
        "import warnings\nwarnings.simplefilter('error')",
        "sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None); sys.settrace(None); sys.setprofile(None)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return x * 2\nasyncio.run(f())",
        "torch.distributed.destroy_process_group()",
        "sys.exit(False)",
    ],
)
def test_a_program_that_ends_well_is_judged_by_its_types(project, source):
    code, report = outcome(project, source)
    assert code == 0
    assert "clean; " in report


@pytest.mark.parametrize(
    "source",
    [
        "import builtins\nbuiltins.print = builtins.len = builtins.isinstance = None",
        "import builtins\nbuiltins.__import__ = None",
        "import builtins\nbuiltins.str = type('str', (str,), {})\nbuiltins.int = float",
        "sys.modules.clear()",
        "sys.meta_path.clear()\nsys.path_hooks.clear()\nsys.path[:] = [None, 5]",
        "class Deaf:\n    def write(self, text): raise OSError\n    flush = write\nsys.stdout = sys.stderr = Deaf()",
        "sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = 5",
        "sys.settrace(lambda *event: 1 / 0)",
        "import shutil\nshutil.rmtree(os.getcwd())",
        "import click\nraise click.UsageError('the program has its own')",
        "class Odd(Exception):\n    def __getattribute__(self, name): raise ValueError(name)\nraise Odd",
        "class Odd(Exception):\n    __traceback__ = property(lambda self: 1 / 0)\nraise Odd",
        "torch.empty(10**15)",
    ],
)
def test_what_a_program_does_to_its_interpreter_loses_no_finding(project, source):
    hooks = sys.excepthook, sys.stdout, len(sys.meta_path), sys.gettrace()
    code, report = outcome(project, f"{MISTAKE}\n{source}")
    assert code == 1
    assert "SW112" in report
    assert hooks == (sys.excepthook, sys.stdout, len(sys.meta_path), sys.gettrace())


@pytest.mark.parametrize("source", ["", "sys.setprofile(None)", "sys.setprofile(lambda *event: None)"])
def test_a_check_inside_of_a_profiler_has_its_outcome_and_the_profiler_goes_on(project, source):
    with cProfile.Profile() as profiler:
        assert outcome(project, f"{MISTAKE}\n{source}")[0] == 1
        assert sys.getprofile() is profiler


def test_an_exception_that_ends_a_thread_is_shown_with_the_frames_of_the_program(project):
    thread = "t = threading.Thread(target=load, name='reader')\nt.start()\nt.join()\n"
    result = project.check_source(f"{CLEAN}\nimport threading\ndef load(): raise ValueError('no such shard')\n{thread}")
    assert result.exit_code == 0
    assert "Exception in thread reader:\n" in result.stderr
    assert "ValueError: no such shard" in result.stderr
    assert os.path.join("src", "shardwise") not in result.stderr


def test_a_program_that_removes_the_folder_it_went_to_is_reported_as_seen_from_where_the_command_was_given(project):
    code, report = outcome(project, "import tempfile\nos.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())\n" + MISTAKE)
    assert code == 1
    assert " --> train.py:" in report
    assert "    torch.relu(x)\n" in report


def test_a_program_that_deletes_its_own_file_is_still_quoted(project):
    code, report = outcome(project, f"os.remove(__file__)\n{MISTAKE}")
    assert code == 1
    assert "torch.relu(x)\n" in report
    assert "needs complete values, but x is still a partial sum over tp" in report


def test_a_request_to_terminate_reports_what_was_found_until_then(project):
    before = signal.getsignal(signal.SIGTERM)
    code, report = outcome(project, f"{MISTAKE}\nimport signal\nos.kill(os.getpid(), signal.SIGTERM)\nx * x\n")
    assert (code, signal.getsignal(signal.SIGTERM)) == (2, before)
    assert "SW912 interrupted" in report
    assert "SW112" in report
    assert "SW111" not in report


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "SW911 nothing-checked"),
        (b"\xef\xbb\xbfx = 1\n", "SW911 nothing-checked"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "SW911 nothing-checked"),
        (b"x = '\xff'\n", "the program raised SyntaxError: Non-UTF-8 code starting with '\\xff', but no encoding"),
        (b"x = 1  # \xff\n", "the program raised SyntaxError: Non-UTF-8 code starting with '\\xff', but no encoding"),
        (b"# -*- coding: nonsense -*-\n", "the program raised SyntaxError: unknown encoding: nonsense"),
        (bytes(range(256)), "train.py is binary, and no Python source"),
    ],
    ids=["empty", "byte order mark", "latin-1", "not utf-8", "not utf-8 in a comment", "unknown encoding", "binary"],
)
def test_a_file_that_is_no_program_exits_2(project, content, said):
    (project.folder / "train.py").write_bytes(content)
    result = project.check("train.py")
    assert result.exit_code == 2
    assert said in result.stdout + result.stderr
    assert ":0" not in result.stdout
    assert "Traceback" not in result.stderr


def test_a_path_with_spaces_and_letters_of_any_script(project):
    source = CLEAN + MISTAKE
    result = project.check(project.write(source, "mein ördner/trän 1.py", typed=True))
    assert result.exit_code == 1
    assert " --> mein ördner/trän 1.py:" in result.stdout
