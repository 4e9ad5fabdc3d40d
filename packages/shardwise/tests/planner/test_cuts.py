"""Cuts are numbered alike for all searches, whichever thread meets one first."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwise.planner.cuts import Cuts


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("again", range(3))
def test_threads_that_number_the_same_cuts_agree(again, hasty_threads):
    wanted = list(itertools.product(itertools.permutations(range(5), 3), repeat=2))
    cuts = Cuts((0, 1), 2)
    with ThreadPoolExecutor(8) as pool:
        numbered = list(pool.map(lambda order: [cuts.number(one) for one in order], [wanted] * 8))
    assert all(numbers == numbered[0] for numbers in numbered)
    assert [cuts.entries[number] for number in numbered[0]] == wanted
    assert len(cuts.entries) == len(cuts.bits) == len(wanted)
