"""`tracewise explore` as a user starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from http.cookiejar import CookieJar

import pytest
from click.testing import CliRunner

from tracewise.cli.commands.explore import command

from ..golden import golden


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "dedicated_log_torch_trace_abcdefgh.log"
    path.write_bytes(golden("basic-fail"))
    return path


@pytest.mark.processes
def test_the_printed_link_opens_the_tables(log):
    started = subprocess.Popen(
        [sys.executable, "-m", "tracewise", "explore", str(log), "--no-open"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert started.stdout is not None
        address = started.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S{20,}", address), address
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert "compilations" in browser.open(address, timeout=30).read().decode()
        page = (
            browser.open(address.split("?")[0] + "t/compilations?v=1&view=table&g=status", timeout=30).read().decode()
        )
        assert "failed" in page
    finally:
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=30)
    assert "Traceback" not in errors
    assert re.search(r"51 events, .* compilations", errors), errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "lets others in"),
        (["--port", "70000"], "not in the range"),
        (["--query-timeout", "0"], "not in the range"),
    ],
)
def test_wrong_use_is_told(log, arguments, message):
    done = CliRunner().invoke(command, [str(log), *arguments])
    assert done.exit_code == 2
    assert message in done.output
