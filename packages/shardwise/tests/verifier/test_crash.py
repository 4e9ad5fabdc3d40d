"""However a program ends on a rank, the verdict tells it in the program's own frames."""

from __future__ import annotations

import io

import pytest

from shardwise.diagnostics.result import RunResult
from shardwise.verifier.records.record import RankRun
from shardwise.verifier.runs.crash import crash_among, crash_caught
from shardwise.verifier.text import Verdict


class Odd(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no data"), "raised ValueError: no data"),
        (Odd("odd"), "raised Odd: odd"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (Unprintable(), "raised Unprintable: an exception that cannot be printed"),
        (SystemExit("the config is missing"), "ended with sys.exit('the config is missing')"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_end_of_any_kind_is_a_crash_in_words(error: BaseException, said: str) -> None:
    run = RankRun()
    with crash_caught(run, io.StringIO()):
        raise error
    assert run.crash is not None
    assert run.crash.text == said
    assert "shardwise/verifier" not in run.crash.traceback


def test_an_end_without_a_failure_is_none() -> None:
    run = RankRun()
    with crash_caught(run, io.StringIO()):
        raise SystemExit(0)
    assert run.crash is None


def test_ranks_that_have_missed_each_other_are_compared_by_another_command() -> None:
    run = RankRun()
    with crash_caught(run, io.StringIO()):
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1")
    failure = crash_among([run], "on the mesh", 2)
    verdict = Verdict("train.py:step", "dp=2, tp=2", RunResult(), failure=failure)
    assert "shardwise check train.py:step --mesh dp=2,tp=2 --ranks all tells" in str(verdict)
