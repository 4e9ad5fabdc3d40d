"""Do traces that would hang give the right finding, and those that would not give none? Without a single process."""

from __future__ import annotations

import pytest

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.uniformity.calls import End, Ending, Trace, TracedCall, TracedGroup, Wait
from shardwise.uniformity.replay import compare

WORLD = TracedGroup((0, 1, 2, 3), name="world")
LEFT, RIGHT = TracedGroup((0, 1), name="left"), TracedGroup((2, 3), name="right")
PAIR, TWIN = TracedGroup((0, 1), 0), TracedGroup((0, 1), 1)


def at(line: int) -> SourceLocation:
    return SourceLocation("train.py", line)


def reduce(group: TracedGroup = PAIR, line: int = 1, size: int = 4, **different) -> TracedCall:
    sizes = (size,) * len(group.ranks)
    given = {"shapes": ((size,),), "dtypes": ("float32",), "typed": f"f32[{size}]", "op": "sum"}
    return TracedCall("all_reduce", group, at(line), **{**given, "sends": sizes, "receives": sizes, **different})


def barrier(group: TracedGroup = PAIR, line: int = 1, **different) -> TracedCall:
    return TracedCall("barrier", group, at(line), **different)


def made(*members: int, group: TracedGroup = PAIR, line: int = 1) -> TracedCall:
    return TracedCall("new_group", group, at(line), members=members, blocking=False)


def send(to: int, line: int = 1, group: TracedGroup = PAIR, size: int = 4, tag: int = 0) -> TracedCall:
    given = {"shapes": ((size,),), "dtypes": ("float32",), "sends": tuple(size * (r == to) for r in group.ranks)}
    return TracedCall("send", group, at(line), peer=to, tag=tag, blocking=False, **given)


def recv(source: int | None, line: int = 1, group: TracedGroup = PAIR, size: int = 4, tag: int = 0) -> TracedCall:
    given = {"shapes": ((size,),), "dtypes": ("float32",)}
    receives = None if source is None else tuple(size * (r == source) for r in group.ranks)
    return TracedCall("recv", group, at(line), peer=source, tag=tag, blocking=False, receives=receives, **given)


def said(*events, ends=()) -> list[tuple[str, int]]:
    """Code and line of what is found about one list of events per rank."""
    return [(one.code, one.location.line) for one in findings(*events, ends=ends)]


def findings(*events, ends=()):
    ending = dict(enumerate(ends))
    return compare(Trace(rank, tuple(own), ending.get(rank) or End()) for rank, own in enumerate(events))


FITTING = {
    "nothing": ([], []),
    "the same": ([reduce(), barrier()], [reduce(), barrier()]),
    "the same from other lines": ([reduce(line=1)], [reduce(line=7)]),
    "groups of others": ([reduce(LEFT)] * 2, [reduce(LEFT)] * 2, [barrier(RIGHT)], [barrier(RIGHT)]),
    "two groups of the same ranks, in one order": ([reduce(PAIR), barrier(TWIN)], [reduce(PAIR), barrier(TWIN)]),
    "crossed, but nobody waits in between": (
        [reduce(PAIR, blocking=False), reduce(TWIN, blocking=False), Wait((0, 1))],
        [reduce(TWIN, blocking=False), reduce(PAIR, blocking=False), Wait((0,)), Wait((1,))],
    ),
    "a message": ([send(1), Wait((0,))], [recv(0), Wait((0,))]),
    "a message from anybody": ([send(1), Wait((0,))], [recv(None), Wait((0,))]),
    "messages both ways, posted together": (
        [send(1), recv(1), Wait((0, 1))],
        [send(0), recv(0), Wait((0, 1))],
    ),
    "messages with tags, in any order": (
        [send(1, tag=1), send(1, tag=2), Wait((0, 1))],
        [recv(0, tag=2), recv(0, tag=1), Wait((0, 1))],
    ),
    "gathered rows of several lengths that all know": (
        [TracedCall("all_gather", PAIR, at(1), sends=(2, 2), receives=(2, 3))],
        [TracedCall("all_gather", PAIR, at(1), sends=(3, 3), receives=(2, 3))],
    ),
    "pieces exchanged": (
        [TracedCall("all_to_all", PAIR, at(1), sends=(1, 2), receives=(1, 5))],
        [TracedCall("all_to_all", PAIR, at(1), sends=(5, 0), receives=(2, 0))],
    ),
    "the same groups": ([made(0), made(1)], [made(0), made(1)]),
    "broadcast into another shape": (
        [TracedCall("broadcast", PAIR, at(1), shapes=((2, 2),), root=0, sends=(4, 4), receives=(4, 0))],
        [TracedCall("broadcast", PAIR, at(1), shapes=((4,),), root=0, sends=(0, 0), receives=(4, 0))],
    ),
}


@pytest.mark.parametrize("name", FITTING)
def test_what_runs_to_its_end_is_no_finding(name):
    assert said(*FITTING[name]) == []


DIVERGING = {
    "another collective": ("SW501", 2, ([reduce(line=2)], [barrier(line=3)])),
    "another collective later": ("SW501", 5, ([reduce(), barrier(line=5)], [reduce(), reduce(line=6)])),
    "a call that another never issues": (
        "SW501", 1, ([reduce(PAIR, 1), barrier(TWIN, 2)], [barrier(TWIN, 2)]),
    ),
    "other groups": ("SW502", 1, ([made(0, line=1)], [made(1, line=2)])),
    "groups in another order": ("SW502", 1, ([made(0), made(1)], [made(1), made(0)])),
    "an end": ("SW503", 2, ([reduce(), reduce(line=2)], [reduce()])),
    "no wait at the end": ("SW503", 2, ([reduce(line=2, blocking=False)], [])),
    "crossed groups": (
        "SW504", 1, ([reduce(PAIR, 1), reduce(TWIN, 2)], [reduce(TWIN, 3), reduce(PAIR, 4)]),
    ),
    "two sends first": (
        "SW504", 1, ([send(1), Wait((0,)), recv(1), Wait((2,))], [send(0), Wait((0,)), recv(0), Wait((2,))]),
    ),
    "two receives first": (
        "SW504", 1, ([recv(1), Wait((0,)), send(1), Wait((2,))], [recv(0), Wait((0,)), send(0), Wait((2,))]),
    ),
    "a reduction": ("SW505", 1, ([reduce()], [reduce(op="max")])),
    "a dtype": ("SW505", 1, ([reduce()], [reduce(dtypes=("float64",))])),
    "a size": ("SW505", 1, ([reduce(size=4)], [reduce(size=5)])),
    "a shape of the same size": ("SW505", 1, ([reduce(shapes=((2, 2),))], [reduce(shapes=((4,),))])),
    "a root": (
        "SW505", 1,
        ([TracedCall("broadcast", PAIR, at(1), root=0)], [TracedCall("broadcast", PAIR, at(1), root=1)]),
    ),
    "rows that others do not expect": (
        "SW505", 1,
        ([TracedCall("all_gather", PAIR, at(1), sends=(2, 2), receives=(2, 2))],
         [TracedCall("all_gather", PAIR, at(1), sends=(3, 3), receives=(3, 3))]),
    ),
    "splits": (
        "SW505", 1,
        ([TracedCall("all_to_all", PAIR, at(1), sends=(1, 2), receives=(1, 5))],
         [TracedCall("all_to_all", PAIR, at(1), sends=(4, 0), receives=(2, 0))]),
    ),
    "the size of a message": ("SW505", 2, ([send(1, 2), Wait((0,))], [recv(0, 3, size=5), Wait((0,))])),
    "no send": ("SW506", 1, ([], [recv(0), Wait((0,))])),
    "no receive": ("SW506", 1, ([send(1)], [])),
    "another tag": ("SW506", 1, ([send(1, tag=1)], [recv(0, tag=2, line=2)])),
    "nobody sends to whoever receives from anybody": ("SW506", 1, ([recv(None), Wait((0,))], [])),
}  # fmt: skip


@pytest.mark.parametrize("name", DIVERGING)
def test_what_hangs_is_found_where_it_hangs(name):
    code, line, events = DIVERGING[name]
    assert said(*events)[0] == (code, line)


@pytest.mark.parametrize("name", [name for name in DIVERGING if name != "another tag"])
def test_one_mistake_is_one_finding(name):
    assert len(said(*DIVERGING[name][2])) == 1


def test_both_halves_of_messages_that_do_not_meet_are_told():
    assert said(*DIVERGING["another tag"][2]) == [("SW506", 1), ("SW506", 2)]


def test_the_rank_that_differs_stands_first_and_the_others_beside_it():
    (found,) = findings([barrier(WORLD)], [barrier(WORLD)], [reduce(WORLD, line=9)], [barrier(WORLD)])
    assert found.location == at(9)
    assert [(one.name, one.type) for one in found.operands] == [
        ("rank 2", "all_reduce(sum) of f32[4]"),
        ("ranks 0, 1 and 3", "barrier"),
    ]


CROSSED = [reduce(PAIR, 1), reduce(TWIN, 2)], [reduce(TWIN, 3), reduce(PAIR, 4)]


def test_a_call_blocks_the_thread_that_issues_it_and_no_other():
    traces = [Trace(0, CROSSED[0], threads=(0, 1)), Trace(1, CROSSED[1], threads=(1, 0))]
    assert compare(traces) == ()
    of_one_thread = [Trace(0, CROSSED[0], threads=(1, 1)), Trace(1, CROSSED[1], threads=(0, 0))]
    assert [one.code for one in compare(of_one_thread)] == ["SW504"]


def test_calls_of_several_threads_keep_their_order_in_a_channel():
    """The second is of a thread that the first one's has started and waits for."""
    events = [reduce(PAIR, 1), barrier(PAIR, 2), reduce(PAIR, 3)]
    assert compare([Trace(0, events, threads=(0, 1, 0)), Trace(1, events, threads=(0, 0, 0))]) == ()


def test_a_thread_may_wait_for_the_call_of_another():
    events = [send(1), Wait((0,))], [Wait((1,)), recv(0)]
    assert compare([Trace(0, events[0], threads=(0, 1)), Trace(1, events[1], threads=(1, 0))]) == ()


def test_a_thread_that_comes_to_no_end_is_told_of():
    traces = [Trace(0, [reduce(TWIN, 1), barrier(PAIR, 2)], threads=(1, 0)), Trace(1, [barrier(PAIR, 3)])]
    assert [(one.code, one.location.line) for one in compare(traces)] == [("SW503", 1)]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(Ending.RAISED, "ValueError: no data", at(9)), "rank 1, which has raised ValueError: no data"),
        (End(Ending.DIED, "of SIGKILL"), "rank 1, which has died of SIGKILL"),
        (End(Ending.BUSY, "after 60 s", at(9)), "rank 1, which is still busy elsewhere after 60 s"),
    ],
)
def test_it_is_told_how_a_rank_ended(end, words):
    (found,) = findings([reduce()], [], ends=(None, end))
    assert found.code == "SW503"
    assert words in found.message
    assert [one.location for one in found.operands if one.location != at(1)] == ([at(9)] if end.location else [])


def test_several_ranks_that_end_alike_are_one_finding():
    (found,) = findings([reduce(WORLD)], [], [], [reduce(WORLD)])
    assert "ranks 0 and 3 wait in all_reduce(sum) of f32[4] over world for ranks 1 and 2" in found.message


def test_the_cause_is_told_and_not_those_who_wait_for_those_who_wait():
    events = [reduce(LEFT), barrier(WORLD)], [reduce(LEFT), barrier(WORLD)], [reduce(RIGHT, 7), barrier(WORLD)], []
    assert said(*events) == [("SW503", 7)]


def test_nothing_is_said_about_a_rank_that_was_cut_off():
    assert said([reduce(), reduce(line=2)], [reduce()], ends=(None, End(Ending.CUT))) == []


def test_ranks_without_a_trace_are_taken_to_follow():
    traces = [Trace(0, [reduce(WORLD), send(3, group=WORLD), Wait((1,))]), Trace(2, [reduce(WORLD)])]
    assert compare(traces) == ()


def test_a_mismatch_in_a_loop_is_told_once():
    assert said([reduce(size=4)] * 9, [reduce(size=5)] * 9) == [("SW505", 1)]


def test_independent_mismatches_are_all_told():
    one, two = [reduce(size=4), reduce(line=2, op="max")], [reduce(size=5), reduce(line=2)]
    assert said(one, two) == [("SW505", 1), ("SW505", 2)]
