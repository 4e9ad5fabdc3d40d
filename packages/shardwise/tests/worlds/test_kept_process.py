"""A process that was forked before a program ran: what it answers, and when it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from shardwise.host.kept_process import kept_process

pytestmark = pytest.mark.processes

HERE: dict[str, int] = {"has run": False}


def seen() -> tuple[int, int]:
    return os.getpid(), HERE["has run"]


def fails() -> None:
    raise LookupError("there is no such thing")


def counted() -> int:
    HERE["calls"] = HERE.get("calls", 0) + 1
    return HERE["calls"]


def takes_its_process_with_it() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_it_knows_nothing_of_what_has_happened_since(monkeypatch):
    with kept_process(wanted=True) as other:
        monkeypatch.setitem(HERE, "has run", True)
        process, has_run = other.call(seen)
    assert process != os.getpid()
    assert not has_run


def test_an_error_comes_back():
    with kept_process(wanted=True) as other, pytest.raises(LookupError, match="no such thing"):
        other.call(fails)


def test_every_call_finds_the_process_as_it_was_kept():
    with kept_process(wanted=True) as other:
        assert [other.call(counted) for _ in range(3)] == [1, 1, 1]


def test_a_call_that_takes_its_process_with_it_leaves_the_next():
    with kept_process(wanted=True) as other:
        with pytest.raises(BrokenProcessPool):
            other.call(takes_its_process_with_it)
        assert not other.call(seen)[1]


def test_a_program_that_waits_for_all_of_its_children_does_not_wait_for_it():
    program = textwrap.dedent("""\
        import os
        from shardwise.host.kept_process import kept_process

        with kept_process(wanted=True):
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                print("no child")
        """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "no child\n"


def test_a_program_that_has_closed_every_file_gets_its_answer_of_a_new_python(tmp_path):
    """Another file may have got the number of a pipe; nothing may be written there."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""\
        import os
        from shardwise.host.kept_process import kept_process

        if __name__ == "__main__":
            with kept_process(wanted=True) as other:
                os.closerange(3, 256)
                others = [os.open("data", os.O_RDWR | os.O_CREAT) for _ in range(50)]
                assert other.call(os.getppid) == os.getpid()
            assert os.path.getsize("data") == 0
        """)
    )
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("killed", [False, True])
def test_it_ends_with_who_keeps_it(killed):
    code = """
    import os, time
    from shardwise.host.kept_process import kept_process

    with kept_process(wanted=True) as other:
        print("kept", flush=True)
        time.sleep({waits})
    """
    program = textwrap.dedent(code.format(waits=60 if killed else 0))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "kept\n"
        if killed:
            keeper.kill()
        began_s = time.monotonic()
        assert keeper.stdout.read() == "", "the pipe is closed when nobody holds it any more"
        assert time.monotonic() - began_s < 30
