"""One planted fault in jobs of 2 to 4,096 ranks: the verdict names what, who and where."""

from __future__ import annotations

from array import array

import pytest

from tracewise.model.collectives import COMPLETED, STARTED, Message
from tracewise.ranks.answers import record_dumps
from tracewise.ranks.collectives import analyse
from tracewise.read.flight import FlightDump

from .dumps import dump
from .schedules import EXPECTED, FAULTS, planted


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("world", "length"), [(3, 60), (5, 60), (8, 200), (16, 400), (64, 200)])
def test_a_planted_fault_is_named(world, length, fault):
    for seed in range(5):
        case = planted(world, length, fault, seed)
        answer = analyse(case.recording)
        assert answer.verdicts, f"seed {seed}"
        found = answer.verdicts[0]
        assert (found.kind, found.what) == EXPECTED[fault], f"seed {seed}: {found.text}"
        assert (found.ranks, found.seq, found.group) == ([case.rank], case.seq, "0"), f"seed {seed}: {found.text}"
        assert f"rank {case.rank}" in found.text.lower()


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(("fault", "length"), [("skip", 200), ("late", 2000)])
def test_a_planted_fault_is_named_among_thousands_of_ranks(fault, length):
    case = planted(4096, length, fault, 1)
    found = analyse(case.recording).verdicts[0]
    assert (found.kind, found.what, found.ranks, found.seq) == (*EXPECTED[fault], [case.rank], case.seq)


@pytest.mark.parametrize("fault", ["skip", "extra", "op", "size"])
def test_of_two_ranks_neither_is_called_guilty(fault):
    case = planted(2, 60, fault, 3)
    found = analyse(case.recording).verdicts[0]
    assert (found.kind, found.ranks, found.seq, found.is_tie) == (EXPECTED[fault][0], [0, 1], case.seq, True)


@pytest.mark.parametrize("world", [2, 7])
def test_ranks_that_agree_are_said_to(world):
    answer = analyse(planted(world, 50, "none", 0).recording)
    assert answer.verdicts == []
    assert answer.is_whole
    assert answer.headline.startswith(f"All {world} ranks agree")


def cut(recording, rank: int, length: int) -> None:
    schedule = recording.schedules["0"][rank]
    for name in ("seqs", "kinds", "sites", "created", "ended", "states", "active", "order"):
        del getattr(schedule, name)[length:]


def test_a_rank_that_never_came_is_missing_and_the_others_wait():
    recording = planted(4, 50, "none", 0).recording
    cut(recording, 2, 30)
    for rank in (0, 1, 3):
        cut(recording, rank, 31)
    found = analyse(recording).verdicts[0]
    assert (found.kind, found.ranks, found.seq) == ("missing", [2], 31)
    assert "ranks 0, 1, 3 wait there" in found.text


def test_a_member_without_any_call_is_missing_and_one_without_a_file_is_not():
    recording = planted(4, 20, "none", 0).recording
    del recording.schedules["0"][3], recording.schedules["0"][2]
    recording.ranks.discard(3)
    answer = analyse(recording)
    assert [(v.kind, v.ranks, v.seq) for v in answer.verdicts if v.group == "0"] == [("missing", [2], 1)]
    assert any("No file of rank 3" in note for note in answer.notes)


def test_a_rank_that_is_not_in_a_group_is_never_missing_from_it():
    recording = planted(4, 20, "none", 0).recording
    recording.groups["1"].members = {0, 2}
    del recording.schedules["1"][1], recording.schedules["1"][3]
    assert analyse(recording).verdicts == []


def test_only_the_window_that_all_have_is_compared():
    case = planted(4, 60, "op", 2)
    schedule = case.recording.schedules["0"][case.rank]
    for name in ("seqs", "kinds", "sites", "created", "ended", "states", "active", "order"):
        del getattr(schedule, name)[:5]
    answer = analyse(case.recording)
    assert (answer.verdicts[0].seq, answer.verdicts[0].ranks) == (case.seq, [case.rank])
    assert any("from collective 6 on" in note for note in answer.notes)


def test_calls_that_were_not_completed_are_told_with_their_states():
    recording = planted(3, 10, "none", 0).recording
    for rank, schedule in recording.schedules["0"].items():
        schedule.states[:] = bytes([COMPLETED]) * 10
        schedule.states[-1] = STARTED if rank else 0
    found = analyse(recording).verdicts[0]
    assert (found.kind, found.ranks, found.seq) == ("unfinished", [0, 1, 2], 10)
    assert "ranks 1, 2 have started it and rank 0 only scheduled it" in found.text


def test_a_clock_that_is_ahead_is_no_lateness():
    recording = planted(4, 50, "none", 0).recording
    for schedule in [s for of_group in recording.schedules.values() for s in of_group.values()]:
        ahead = 3_000_000_000 if schedule.rank == 2 else 0
        schedule.ended = array("q", (time + 5_000_000 + ahead for time in schedule.created))
        schedule.created = array("q", (time + ahead for time in schedule.created))
    answer = analyse(recording)
    assert answer.verdicts == []
    assert answer.skews_ns == {2: 3_000_000_000}
    assert any("rank 2 is 3.0 s ahead" in note for note in answer.notes)


def test_a_gather_that_its_result_cannot_hold_is_a_fault_of_size():
    recording = planted(4, 20, "none", 0).recording
    kind = next(k for k in recording.kinds if k.op == "all_gather")
    number = recording.kind(kind._replace(out_sizes=((7,),)))
    for schedule in recording.schedules["0"].values():
        schedule.kinds[11] = number
    found = analyse(recording).verdicts[0]
    assert (found.kind, found.seq, found.ranks) == ("size", 12, [0, 1, 2, 3])


def test_messages_are_matched_with_their_receives():
    recording = planted(4, 20, "none", 0).recording
    recording.messages = [
        Message("0", 0, 1, True, 8, 0),
        Message("0", 0, 1, False, 8, 0),
        Message("0", 2, 3, True, 4, 0),
    ]
    (found,) = analyse(recording).verdicts
    assert (found.kind, found.ranks) == ("message", [3])
    recording.messages = [Message("0", 0, 1, True, 8, 0), Message("0", 0, 1, False, 9, 0)]
    (found,) = analyse(recording).verdicts
    assert (found.kind, found.ranks) == ("size", [0, 1])


def test_times_of_nobody_make_nobody_late():
    recording = planted(3, 20, "late", 0).recording
    for schedule in recording.schedules["0"].values():
        schedule.created = array("q", bytes(8 * 20))
    assert analyse(recording).verdicts == []


WRONG = (None, 0, -1, 1 << 70, 1.5, "x", "[99999999999]", [], [[]], {}, {"ranks": [1 << 60]}, True)


def recorded(values: list[dict]):
    dumps = [
        FlightDump(f"fr_{rank}", rank, "2.10", True, value["pg_config"], {}, value["entries"])
        for rank, value in enumerate(values)
    ]
    return record_dumps(dumps)


@pytest.mark.parametrize("name", [*dump(1, "none")["entries"][0], "pg_config"])
def test_a_field_of_any_type_costs_at_most_its_own_entry(name):
    for wrong in WRONG:
        values = [dump(rank, "none") for rank in range(4)]
        if name == "pg_config":
            values[1]["pg_config"] = {"0": wrong, "": wrong}
        else:
            values[1]["entries"][-1][name] = wrong
        recording = recorded(values)
        answer = analyse(recording)
        assert sum(len(s) for of_group in recording.schedules.values() for s in of_group.values()) >= 41
        # What was lost is said, or what is wrong with the call.
        assert answer.compared == 42 or not answer.is_whole or answer.verdicts
