"""The scale of numbers that a program writes, by what it writes on another number of ranks."""

from __future__ import annotations

from shardwise.cli.runs.further.numbers_elsewhere import NumbersUsed, are_dealt_out, exponents_of
from shardwise.diagnostics.source_location import SourceLocation


def used(rows, **numbers):
    return NumbersUsed({SourceLocation(call, 1): set(map(float, each)) for call, each in numbers.items()}, set(rows))


def test_a_number_is_the_same_or_grows_or_falls_with_the_ranks():
    here, there = used([4], a=[3], b=[4], c=[8], d=[0.5]), used([2], a=[3], b=[2], c=[16], d=[0.125])
    assert exponents_of(here, there, 2.0) == {3.0: 0, 4.0: -1, 8.0: 1, 0.5: -2}
    assert exponents_of(there, here, 0.5) == {3.0: 0, 2.0: -1, 16.0: 1, 0.125: -2}


def test_several_numbers_of_one_call_move_alike_or_are_not_known():
    assert exponents_of(used([4], a=[2, 4]), used([2], a=[2, 4]), 2.0) == {2.0: 0, 4.0: 0}
    assert exponents_of(used([4], a=[2, 4]), used([2], a=[2, 8]), 2.0) == {2.0: None, 4.0: None}
    assert exponents_of(used([4], a=[2], b=[2]), used([2], a=[2], b=[1]), 2.0) == {2.0: None}, "one here, one there"
    assert exponents_of(used([4], a=[2]), used([2]), 2.0) == {2.0: None}, "the call is not made there"
    assert exponents_of(used([4], a=[6]), used([2], a=[7]), 2.0) == {6.0: None}


def test_nothing_is_known_of_a_program_that_has_as_many_samples_on_each_rank():
    assert exponents_of(used([4], a=[4]), used([4], a=[4]), 2.0) == {}
    assert exponents_of(used([], a=[4]), used([], a=[4]), 2.0) == {}


def test_micro_batches_of_as_many_rows_are_dealt_out_where_they_are_fewer_on_more_ranks():
    here, there = used([2], a=[4], b=[4]), used([2], a=[4], b=[2])
    here.calls, there.calls = 4, 2
    assert are_dealt_out(here, there, 2.0)
    assert exponents_of(here, there, 2.0) == {4.0: None}, "one call here is on the scale of one device, one is not"
    there.calls = 4
    assert not are_dealt_out(here, there, 2.0), "as many on every rank: other data"
    there.calls, there.rows = 2, {1}
    assert not are_dealt_out(here, there, 2.0), "shorter and fewer"
