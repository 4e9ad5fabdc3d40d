"""Does the sweep over PyTorch's op database tell truth from lies, and do the op rules pass it on a part of it?"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import time
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from shardwise.interop.torch_compat import op_database
from shardwise.types.placement import P, R, S, V
from shardwise_devtools.sweep.apart import GivenUp, run_apart
from shardwise_devtools.sweep.checker_answers import rulesets
from shardwise_devtools.sweep.choices import global_choices, local_choices
from shardwise_devtools.sweep.dtensor_rules import dtensor_book
from shardwise_devtools.sweep.known_gaps import GAPS, NO_RULE
from shardwise_devtools.sweep.samples import cases_of, full_name, rule_of
from shardwise_devtools.sweep.skips import SKIPS
from shardwise_devtools.sweep.tallies import Rulesets, tallies_of

# Many cases read one sweep, so they belong to one worker (--dist loadgroup).
pytestmark = pytest.mark.xdist_group("sweep")

FAST = ("mul", "where", "mm", "sum", "argmax", "softmax", "nn.functional.layer_norm", "cat", "view")
"""A part of what `make nightly` sweeps."""


@functools.cache
def entries():
    return {full_name(op): op for op in op_database()}


@functools.cache
def tallies():
    return {tally.name: tally for tally in tallies_of(FAST, functools.partial(rulesets, dtensor=False), jobs=0)}


@contextlib.contextmanager
def book_that_says(answer, local=None):
    yield Rulesets(lambda *_: answer, lambda *_: local or "no", lambda *_: False)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", FAST)
def test_the_book_tells_no_lie(name):
    tally = tallies()[name]
    assert tally.cases > 0
    assert [str(note) for note in tally.wrong] == []


REPORT = {op["name"]: op for op in json.loads((Path(__file__).parents[4] / "docs/coverage.json").read_text())["ops"]}


@pytest.mark.parametrize("name", FAST)
def test_the_committed_report_has_the_figures_that_are_measured_now(name):
    tally, reported = tallies()[name], REPORT[name]
    assert tally.cases == reported["cases"]
    for ruleset in ("global", "local"):
        missing = sum(gap["count"] for gap in reported["missing"] if gap["ruleset"] == ruleset)
        assert tally.covered[ruleset] == reported["covered"][ruleset], "run `make sweep`"
        assert sum(note.ruleset == ruleset for note in tally.missing) == missing, "run `make sweep`"


def test_the_book_knows_nearly_all_of_the_fast_part():
    for ruleset in ("global", "local"):
        covered = sum(tally.covered[ruleset] for tally in tallies().values())
        missing = sum(note.ruleset == ruleset for tally in tallies().values() for note in tally.missing)
        assert covered > 100
        assert covered / (covered + missing) > 0.95


def test_a_planted_global_lie_is_reported_with_the_call_that_refutes_it():
    tally = tallies_of(["softmax"], lambda: book_that_says((S(0),)), jobs=0)[0]
    assert {note.ruleset for note in tally.wrong} == {"global"}
    # Every operand is cut on dim 0 now and then, so some claims are lies whatever dim the operator takes.
    assert all(
        "-> S(0)" in note.fact and note.call.startswith(("float64[", "float32[", "complex128[")) for note in tally.wrong
    )


@pytest.mark.slow
def test_a_planted_lie_about_gradients_alone_is_reported():
    tally = tallies_of(["nn.functional.relu"], lambda: book_that_says((R,)), jobs=0)[0]
    assert any("is not the global one" in note.reason for note in tally.wrong)


@pytest.mark.slow
def test_a_planted_local_lie_is_reported():
    tally = tallies_of(["exp"], lambda: book_that_says("no", (P,)), jobs=0)[0]
    assert {(note.ruleset, note.fact) for note in tally.wrong} == {
        ("local", "P -> P"),
        ("local", "V -> P"),
        ("local", "I -> P"),
    }


@pytest.mark.slow
def test_a_book_that_refuses_everything_misses_everything():
    tally = tallies_of(["neg"], lambda: book_that_says("SW411: no"), jobs=0)[0]
    assert tally.wrong == []
    assert tally.covered == {"global": 0, "local": 0, "foreign": 0}
    assert "P -> P" in {note.fact for note in tally.missing if note.ruleset == "global"}
    assert {note.reason for note in tally.missing if note.ruleset == "global"} == {"SW411: no"}


@pytest.mark.slow
def test_samples_are_the_same_in_every_run():
    drawn = [[(case.shown, case.values) for case in cases_of(entries()["addmm"])] for _ in range(2)]
    assert [shown for shown, _ in drawn[0]] == [shown for shown, _ in drawn[1]]
    for (_, first), (_, second) in zip(*drawn, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_few_operands_are_placed_in_every_way():
    both = global_choices([torch.ones(2, 3), torch.ones(4)], 40, random.Random(0))
    assert set(both) == {(a, b) for a in (R, S(0), S(1), P) for b in (R, S(0), P)} - {(R, R)}
    many = global_choices([torch.ones(2, 3, 4)] * 5, 40, random.Random(0))
    assert len(many) <= 40
    assert {(S(1),) * 5, (P,) * 5, (S(2), R, R, R, R)} <= set(many)


def test_a_mask_is_never_a_pending_sum():
    assert all(P not in choice for choice in local_choices([torch.ones(2, dtype=torch.bool)]))
    assert (V, R) in local_choices([torch.ones(2), torch.ones(2)])


def crash_or_double(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        raise ValueError("two")
    return 2 * number


@pytest.mark.processes
def test_a_task_that_crashes_does_not_take_the_others_with_it():
    assert list(run_apart(crash_or_double, [0, 1, 2, 3], jobs=2, timeout_s=60)) == [
        0, GivenUp("crashes the process"), GivenUp("the sweep itself fails: ValueError: two"), 6,
    ]  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("never", [time.sleep, lambda seconds: [None for _ in iter(int, 1)]], ids=["waits", "works"])
def test_a_task_that_does_not_end_is_given_up(never):
    assert list(run_apart(never, [600], jobs=1, timeout_s=0.1)) == [GivenUp("not done within 0.1 s")]


@pytest.mark.processes
def test_a_task_is_not_given_up_for_what_else_the_machine_does():
    assert list(run_apart(time.sleep, [0.5], jobs=1, timeout_s=0.1)) == [None]


class Counting(TorchDispatchMode):
    """How often did an operator run?"""

    def __init__(self):
        super().__init__()
        self.runs = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.runs += 1
        return func(*args, **kwargs or {})


def test_dtensor_is_asked_of_placements_as_they_are():
    """It runs a decomposition on all placements of all tensors otherwise: of a list that took minutes."""
    many, halves = [torch.rand(4, 2) for _ in range(6)], [torch.rand(2, 2) for _ in range(2)]
    with dtensor_book() as book:
        with Counting() as counted:
            book.ask(lambda *given: torch._chunk_cat(list(given), 0, 2), many, (P,) * 6, many)
        admitted, _ = book.ask(lambda x, y: F.huber_loss(x, y, reduction="none"), halves, (S(0), S(0)), many[:2])
        refused, _ = book.ask(lambda x, y: F.huber_loss(x, y, reduction="none"), many[:2], (P, P), many[:2])
    assert 0 < counted.runs < 100
    assert admitted == (S(0),)
    assert isinstance(refused, str)


def test_every_entry_of_the_database_has_a_rule_or_a_listed_reason():
    missing = {name for name, op in entries().items() if rule_of(op) is None}
    assert missing == set(NO_RULE)


def test_every_skip_and_every_gap_is_about_an_entry_of_the_database():
    names = {op.name for op in op_database()}
    assert set(SKIPS) <= names
    patterns = [pattern for gap in GAPS for pattern in gap.patterns]
    assert [one for one in patterns if not any(fnmatchcase(name, one) for name in entries())] == []
