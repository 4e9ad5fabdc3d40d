"""Does verify pass examples/gpt as it is, and catch every bug of the catalogue that no types see?"""

from __future__ import annotations

import pytest
from catalogue import apply, load
from proof import Job
from verified import verify

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("bugs")]

UNSEEN = [
    bug
    for bug in load()
    if not (bug.expected("local") or bug.expected("global")) and bug.section != "uniformity"  # their ranks hang
]


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [(), ("--sequence-parallel",), ("--dtype", "float32")], ids=" ".join)
def test_the_gpt_computes_on_four_ranks_what_it_computes_on_one(options, tmp_path):
    script = apply(None, tmp_path / "gpt")
    verdict = verify(Job(script, options))
    assert (verdict.first, verdict.errors, verdict.failure) == ("", 0, "")
    assert verdict.compared >= 100


@pytest.mark.nightly
def test_dropout_is_compared_between_ranks_only(tmp_path):
    verdict = verify(Job(apply(None, tmp_path / "gpt"), ("--dropout", "0.1")))
    assert (verdict.first, verdict.failure) == ("", "")
    assert verdict.compared >= 50


@pytest.mark.slow_but_one_in(2)
@pytest.mark.one_in(6)
@pytest.mark.parametrize("bug", UNSEEN, ids=lambda bug: bug.id)
def test_a_bug_that_no_types_see_is_seen_in_the_numbers(bug, tmp_path):
    verdict = verify(Job(apply(bug, tmp_path / bug.program), bug.args, bug.program))
    assert verdict.errors == 0
    assert verdict.caught, verdict


def test_there_are_bugs_that_no_types_see():
    assert len(UNSEEN) >= 3
