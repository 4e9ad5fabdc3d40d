"""Does a warm Python run words as a real one does: streams, words, folder, environment, exit codes and signals?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]
REAL = sys.executable

SAYS = """\
import os, sys
print(sys.argv, sys.stdin.read(), os.getcwd(), os.environ["SAID"], os.environ.get("HOME"))
print("wrong", file=sys.stderr)
sys.exit(3)
"""


def ran(python: str, folder: Path, *words: str) -> tuple[int, str, str]:
    environment = {"SAID": "here", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [python, *words], cwd=folder, env=environment, input="read", capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    "words",
    [
        ("-c", SAYS, "-m", "two words"),
        ("said.py", "--option", "ü"),
        ("-u", "-m", "said", "1"),
        ("-c", "import sys; sys.exit('a reason')"),
        ("-c", "import sys; sys.exit()"),
        ("-c", "import atexit; atexit.register(print, 'at the end')"),
        ("-c", "import threading; threading.Timer(0.1, print, ['waited for']).start()"),
        ("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        ("-c", "import os; os.close(1); print('nobody reads', file=__import__('sys').stderr)"),
    ],
)
def test_words_do_what_they_do_in_a_real_one(words, tmp_path):
    (tmp_path / "said.py").write_text(SAYS)
    assert ran(sys.executable, tmp_path, *words) == ran(REAL, tmp_path, *words)


def test_torch_is_there_already(tmp_path):
    code, out, _ = ran(sys.executable, tmp_path, "-c", "import sys; print('torch' in sys.modules)")
    assert (code, out) == (0, "True\n")


def test_streams_that_are_closed_stay_closed():
    say = "import os; os.fstat(2); os.fstat(1)"
    done = subprocess.run(f'"{sys.executable}" -c "{say}" >&-', shell=True, stderr=subprocess.PIPE, text=True)
    assert "Bad file descriptor" in done.stderr


def started(program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_signal_reaches_what_runs():
    heard = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    for program, code in ((heard, 7), ("import time\n", -signal.SIGTERM)):
        with started(f"{program}print('ready', flush=True)\nfor _ in range(600): time.sleep(0.1)") as run:
            run.terminate()
            assert run.wait(60) == code


def test_what_runs_ends_with_the_one_that_has_started_it():
    process = subprocess.Popen(
        [sys.executable, "-c", "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_options_of_python_s_own_are_refused(tmp_path):
    code, _, err = ran(sys.executable, tmp_path, "-X", "importtime")
    assert code == 1
    assert "need a real one" in err
