"""Do ranks that share a process see what ranks of their own see, in the same order every time, and end when stuck?"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.result import Collector
from shardwise.worlds.in_process.turns import Abandoned, Turns
from shardwise.worlds.waiting import listed
from shardwise.worlds.world import (
    CollectiveMismatch,
    Deadlock,
    FakeWorld,
    InProcessWorld,
    ProcessWorld,
    RankFailure,
    RankTimeout,
)

from .programs_of_ranks import PROGRAMS, own, quietly

pytestmark = pytest.mark.processes


def assert_same(ours: Any, theirs: Any) -> None:
    """Tensors agree to rounding: gloo takes sums in an order of its own. Everything else is equal."""
    if isinstance(ours, Tensor):
        torch.testing.assert_close(ours, theirs)
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_ranks_see_what_processes_see(program):
    assert_same(InProcessWorld(4).run(quietly, program), ProcessWorld(4).run(quietly, program))


def test_a_planted_difference_is_found():
    with pytest.raises(AssertionError):
        assert_same([[torch.ones(2), "a"]], [[torch.ones(2), "b"]])
    with pytest.raises(AssertionError):
        assert_same([[torch.ones(2)]], [[torch.zeros(2)]])


def test_one_rank_is_a_world():
    assert InProcessWorld(1).run(lambda: own(2).tolist()) == [own_of_rank(0)]


def own_of_rank(rank: int) -> list[float]:
    return InProcessWorld(rank + 1).run(lambda: own(2).tolist())[rank]


# Turns


def journal(lines: list[str]) -> None:
    rank = dist.get_rank()
    for step in range(2):
        lines.append(f"{rank}:{step}")
        dist.barrier()
    lines.append(f"{rank}:end")


def test_ranks_take_turns_in_an_order_that_never_varies():
    runs = []
    for _ in range(3):
        lines: list[str] = []
        InProcessWorld(3).run(lambda lines=lines: journal(lines))
        runs.append(lines)
    assert runs[0] == ["0:0", "1:0", "2:0", "2:1", "0:1", "1:1", "1:end", "2:end", "0:end"]
    assert runs == [runs[0]] * 3


def test_random_numbers_of_the_caller_are_left_alone():
    torch.manual_seed(5)
    random.seed(5)
    expected = (torch.rand(1), random.random())
    torch.manual_seed(5)
    random.seed(5)
    InProcessWorld(2).run(lambda: (torch.manual_seed(1), torch.rand(3), random.seed(1), dist.barrier()))
    assert (torch.rand(1), random.random()) == expected


@pytest.mark.parametrize("world", [InProcessWorld, ProcessWorld])
def test_python_s_random_numbers_differ_between_ranks_and_repeat(world):
    random.seed(5)
    first = world(2).run(random.random)
    assert first[0] != first[1]
    assert first == world(2).run(random.random)
    random.seed(6)
    assert first != world(2).run(random.random)


def test_arguments_are_copied_for_every_rank():
    x, module = torch.zeros(1), nn.Linear(1, 1)
    results = InProcessWorld(2).run(lambda x, module: (x.add_(dist.get_rank() + 1), module.weight), x, module)
    assert [float(x) for x, _ in results] == [1.0, 2.0]
    assert float(x) == 0.0
    assert len({id(weight) for _, weight in results} | {id(module.weight)}) == 3


def test_nothing_of_a_world_is_left():
    threads = torch.get_num_threads()
    InProcessWorld(2).run(lambda: init_device_mesh("cpu", (2,)))
    assert not dist.is_initialized()
    assert torch.get_num_threads() == threads
    assert [one.name for one in threading.enumerate() if one.name.startswith("rank ")] == []
    assert not hasattr(dist.distributed_c10d._world, "_own")


def inside_inference_mode() -> list[Any]:
    x = torch.ones(2)
    with torch.inference_mode():
        y = torch.ones(2)
        dist.all_reduce(y)
        dist.all_reduce(x)
    leaf = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf)
    return [x.tolist(), x._version, y.tolist(), leaf.tolist(), leaf._version]


def test_a_collective_leaves_no_trace_in_autograd():
    expected = [[2.0, 2.0], 0, [2.0, 2.0], [2.0, 2.0], 0]
    assert InProcessWorld(2).run(inside_inference_mode) == [expected] * 2
    assert ProcessWorld(2).run(inside_inference_mode) == [expected] * 2


def test_a_rank_that_is_abandoned_gets_no_state_back():
    restored: list[int] = []
    turns = Turns(2, on_stuck=lambda: None, suspend=lambda rank: None, resume=restored.append)
    unwound = []

    def rank_main(rank: int) -> None:
        try:
            turns.attend(rank)
            turns.wait_until(rank, lambda: False)
        except Abandoned:
            unwound.append(rank)
        finally:
            turns.end(rank)

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    turns.begin()
    assert turns.over.wait(20)
    assert restored == [0, 1]
    assert sorted(unwound) == [0, 1]


# Every rank is checked on its own


def checked() -> tuple[list[Any], list[str]]:
    """Rank 1 alone makes a mistake, between collectives at which the ranks take turns."""
    found = Collector()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    with checking(collect=found), spmd.set_current_mesh(mesh):
        x = spmd.assert_type(own(2, 2), {"tp": P})
        y = spmd.all_reduce(x, "tp", src=P, dst=R)
        if dist.get_rank() == 1:
            torch.nn.functional.gelu(x)
        spmd.all_reduce(x, "tp", src=P, dst=I)
        types = list(spmd.get_local_type(y).values())
    return types, [finding.code for finding in found.result().findings]


def test_every_rank_is_checked_on_its_own():
    assert InProcessWorld(2).run(checked) == [([R], []), ([R], ["SW112"])]


# What goes wrong


def test_a_rank_that_raises_is_named_with_its_traceback():
    def program() -> None:
        if dist.get_rank() == 1:
            raise KeyError("the missing key")
        dist.barrier()

    with pytest.raises(RankFailure, match=r"rank 1 of 3 failed\n(.|\n)*in program(.|\n)*the missing key") as caught:
        InProcessWorld(3).run(program)
    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, KeyError)


def test_all_ranks_that_raise_are_named():
    def program() -> None:
        raise KeyError

    with pytest.raises(RankFailure, match="rank 0 of 3 failed; so did ranks 1, 2"):
        InProcessWorld(3).run(program)


def test_groups_that_cannot_be_destroyed_fail_their_rank_at_once(monkeypatch):
    """torch 2.15 read a table that ours lacked: every rank waited a minute for the others, and nobody was told why."""

    def broken() -> None:
        raise AttributeError("no such table")

    monkeypatch.setattr(dist, "destroy_process_group", broken)
    with pytest.raises(RankFailure, match="no such table"):
        InProcessWorld(2, timeout_s=10).run(own)


def test_a_rank_has_every_map_of_groups_that_torch_has():
    def maps() -> set[str]:
        world = dist.distributed_c10d._world
        names = set(dir(dist.distributed_c10d._World)) - {"pg_config_info"}  # a list, made of the others
        return {name for name in names if isinstance(getattr(world, name), dict) and not name.startswith("_")}

    (expected,) = FakeWorld(1).run(maps)
    assert expected >= {"pg_map", "pg_names", "pg_group_ranks"}
    assert InProcessWorld(2).run(maps) == [expected, expected]


def stuck_in_two_ways() -> None:
    group = dist.new_group([0, 1])
    x = torch.ones(3)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        dist.all_reduce(x, group=group)  # rank 0 waits here
    elif dist.get_rank() == 1:
        dist.recv(x, 2)  # rank 1 waits here


def line_of(words: str) -> int:
    with open(__file__) as source:
        return next(number for number, line in enumerate(source, 1) if words in line and "line_of" not in line)


def test_a_deadlock_is_told_at_once_with_who_waits_for_whom():
    started = time.monotonic()
    with pytest.raises(Deadlock, match=r"^ranks 0, 1 of 4 wait for what never comes\n") as caught:
        InProcessWorld(4).run(stuck_in_two_ways)
    assert time.monotonic() - started < 10
    zero, one, two, three = caught.value.standings
    assert str(zero.entered) == (
        "in all_reduce(sum, f32[3]), collective 1 of the group of ranks 0, 1; rank 1 never arrived"
    )
    assert str(one.entered) == "in recv(f32[3]) from rank 2; rank 2 never arrived"
    assert (zero.location.line, one.location.line) == (line_of("# rank 0 waits here"), line_of("# rank 1 waits here"))
    assert str(two) == "rank 2 has returned"
    assert str(three) == "rank 3 has returned"
    assert all(str(standing) in str(caught.value) for standing in caught.value.standings)


def test_a_receive_from_anybody_that_nobody_answers_is_a_deadlock():
    with pytest.raises(Deadlock, match=r"rank 0 .* is in recv\(f32\[1\]\) from any rank"):
        InProcessWorld(2).run(lambda: dist.recv(torch.ones(1)) if dist.get_rank() == 0 else None)


def test_sends_that_wait_for_each_other_are_a_deadlock():
    def program() -> None:
        other = 1 - dist.get_rank()
        dist.send(torch.ones(1), other)
        dist.recv(torch.ones(1), other)

    with pytest.raises(Deadlock, match=r"send\(f32\[1\]\) to rank 1; rank 1 never arrived"):
        InProcessWorld(2).run(program)


def test_a_rank_that_is_unwound_cannot_go_on():
    survived = []

    def program() -> None:
        if dist.get_rank() == 0:
            try:
                dist.barrier()
            except Exception:
                survived.append("caught")
            finally:
                dist.barrier()
                survived.append("went on")

    with pytest.raises(Deadlock):
        InProcessWorld(2).run(program)
    assert survived == []


def kinds() -> None:
    x = torch.ones(3)
    dist.broadcast(x, 0) if dist.get_rank() == 0 else dist.all_reduce(x)


def roots() -> None:
    dist.broadcast(torch.ones(1), dist.get_rank())


def ops() -> None:
    dist.all_reduce(torch.ones(1), dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)


def shapes() -> None:
    dist.all_reduce(torch.ones(3 + dist.get_rank()))


def dtypes() -> None:
    dist.all_reduce(torch.ones(3, dtype=torch.int32 if dist.get_rank() else torch.float32))


def splits() -> None:
    dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 3] if dist.get_rank() else [2, 2], [2, 2])


def lengths() -> None:
    dist.recv(torch.ones(3), 0) if dist.get_rank() else dist.send(torch.ones(2), 1)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (kinds, ["broadcast and all_reduce", "broadcast(f32[3], root 0)", "all_reduce(sum, f32[3])"]),
        (roots, ["roots: 0 and 1", "collective 1 of the group of ranks 0, 1"]),
        (ops, ["reductions: SUM and MAX"]),
        (shapes, ["3 elements on one and 4 on the other", "f32[3]", "f32[4]"]),
        (dtypes, ["f32 on one and i32 on the other"]),
        (splits, ["elements on one and 2 on the other"]),
        (lengths, ["3 elements on one and 2 on the other", "a message", "send(f32[2]) to rank 1"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_calls_that_do_not_agree_are_named_with_both_places(program, words):
    with pytest.raises(CollectiveMismatch) as caught:
        InProcessWorld(2).run(program)
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert sorted(caught.value.ranks) == [0, 1]
    assert text.count(f"{__file__}:{program.__code__.co_firstlineno + 1}") >= 1 or program is kinds
    assert text.count(__file__) == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dist.all_reduce(torch.ones(4)[::2]), "takes dense tensors"),
        (lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(1)), "has no 2 equal parts"),
        (lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2), [1, 2], [1, 1]), "do not cut dim 0"),
        (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.PREMUL_SUM), "ranks in one process reduce by SUM"),
        (lambda: dist.all_to_all_single(torch.ones(2, 2), torch.ones(2, 2).t()), "takes contiguous tensors"),
        (lambda: dist.all_reduce(torch.eye(2).to_sparse()), "strided tensors, got torch.sparse_coo"),
    ],
    ids=["gaps", "parts", "splits", "op", "order", "sparse"],
)
def test_what_no_rank_can_call_fails_on_the_rank_that_calls_it(call, words):
    with pytest.raises(RankFailure, match=words):
        InProcessWorld(2).run(quietly, call)


def test_a_rank_that_does_not_come_back_is_named_and_ended():
    def program() -> None:
        if dist.get_rank() == 1:
            while True:
                pass
        dist.barrier()

    with pytest.raises(RankTimeout, match="ranks 0, 1 of 2 did not finish in 1 s") as caught:
        InProcessWorld(2, timeout_s=1).run(program)
    zero, one = caught.value.standings
    assert zero.entered is not None
    assert zero.entered.missing == (1,)
    assert one.entered is None
    assert one.location.function.endswith("program")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")] == []


@pytest.mark.parametrize("world", [InProcessWorld, ProcessWorld, FakeWorld])
def test_a_world_without_ranks_is_refused(world):
    with pytest.raises(SpmdValueError, match="a world needs at least one rank, got 0") as caught:
        world(0).run(print)
    assert caught.value.code == "SW903"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([1], "rank 1"),
        ([2, 0], "ranks 0, 2"),
        (range(8), "ranks 0, 1, 2, 3, 4, 5, 6, 7"),
        (range(64), "ranks 0 to 63"),
        (range(0, 64, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 24 more"),
    ],
)
def test_ranks_are_listed_as_long_as_they_are_few(ranks, text):
    assert listed(ranks) == text


def test_worlds_do_not_nest():
    with pytest.raises(RankFailure, match="this process has one already"):
        InProcessWorld(1).run(InProcessWorld(1).run, print)
    with pytest.raises(RankFailure, match="this process has one already"):
        InProcessWorld(1).run(lambda: ProcessWorld(1).run(print))


def test_one_world_at_a_time():
    started, ended = threading.Event(), threading.Event()

    def stays() -> None:
        started.set()
        ended.wait(20)

    other = threading.Thread(target=lambda: InProcessWorld(1).run(stays))
    other.start()
    started.wait(20)
    with pytest.raises(RuntimeError, match="another thread of this process runs an in-process world"):
        InProcessWorld(1).run(print)
    ended.set()
    other.join()


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
def test_coalesced_calls_are_over_when_their_block_or_their_handle_is(at_once: bool) -> None:
    def program() -> list[list[float]]:
        xs = [torch.full((2,), 1.0 + dist.get_rank()), torch.ones(1)]
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=not at_once) as manager:
            for x in xs:
                dist.all_reduce(x)
        if not at_once:
            manager.wait()
        return [x.tolist() for x in xs]

    assert InProcessWorld(3).run(program) == [[[6.0, 6.0], [3.0]]] * 3
