"""However a program ends on a rank, the verdict tells it in the program's own frames."""

from __future__ import annotations

import io

import pytest

from shardwise.verifier.records.record import RankRun
from shardwise.verifier.runs.crash import crash_caught


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
