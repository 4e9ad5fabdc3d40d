"""Do worlds look alike, and does the process world report every way to fail and leave nothing behind?"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from shardwise.interop.torch_compat import fake_world
from shardwise.worlds.world import FakeWorld, InProcessWorld, ProcessWorld, RankFailure, RankTimeout, run_processes

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("world", "ranks", "seen"),
    [
        (FakeWorld(4, rank=2), (2,), [(2, 4, "2", "x")]),
        (InProcessWorld(2), (0, 1), [(0, 2, "0", "x"), (1, 2, "1", "x")]),
        (ProcessWorld(2), (0, 1), [(0, 2, "0", "x"), (1, 2, "1", "x")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_worlds_look_alike(world, ranks, seen):
    def program(given: str) -> tuple[int, int, str, str]:
        dist.all_reduce(torch.ones(1))
        return dist.get_rank(), dist.get_world_size(), os.environ["RANK"], given

    assert world.ranks == ranks
    assert world.size == seen[0][1]
    assert world.run(program, "x") == seen
    assert not dist.is_initialized()


def _sum_of_ranks(offset: int) -> torch.Tensor:
    x = torch.tensor([dist.get_rank() + offset])
    dist.all_reduce(x)
    return x


def test_results_come_back_in_rank_order_and_ranks_talk():
    assert [int(x) for x in run_processes(_sum_of_ranks, 3, 10)] == [33, 33, 33]


def test_ranks_are_numbered():
    assert run_processes(lambda: (dist.get_rank(), dist.get_world_size()), 2) == [(0, 2), (1, 2)]


def _fails_on_one() -> None:
    if dist.get_rank() == 1:
        raise KeyError("the missing key")
    dist.barrier()


def test_a_failing_rank_is_named_with_its_traceback_while_the_others_wait():
    started = time.monotonic()
    with pytest.raises(RankFailure, match="rank 1 of 3 failed") as caught:
        run_processes(_fails_on_one, 3)
    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in _fails_on_one" in str(caught.value)
    assert "the missing key" in str(caught.value)
    assert time.monotonic() - started < 30


def _raises_what_cannot_be_pickled() -> None:
    class Local(Exception):
        pass

    raise Local("carried as text")


def test_an_exception_that_cannot_travel_is_told_as_text():
    with pytest.raises(RankFailure, match="carried as text") as caught:
        run_processes(_raises_what_cannot_be_pickled, 1)
    assert caught.value.__cause__ is None


def _dies() -> None:
    os._exit(7)


def test_a_rank_that_dies_silently_is_named_with_its_exit_code():
    with pytest.raises(RankFailure, match=r"rank 0 of 1 failed(.|\n)*exit code 7"):
        run_processes(_dies, 1)


def _hangs_on_one() -> None:
    if dist.get_rank() == 1:
        time.sleep(600)


@pytest.mark.slow
def test_a_time_out_names_the_missing_ranks_and_where_they_hang():
    with pytest.raises(RankTimeout, match="rank 1 of 2 did not finish in 3 s") as caught:
        run_processes(_hangs_on_one, 2, timeout_s=3)
    assert caught.value.ranks == (1,)
    assert "_hangs_on_one" in str(caught.value)


def _comes_apart() -> None:
    group = dist.new_group([0, 1])
    x = torch.ones(3)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        funcol.all_reduce(x, "sum", group).add(1)  # rank 0 waits here
    elif dist.get_rank() == 1:
        dist.recv(x, 2)  # rank 1 waits here
    elif dist.get_rank() == 2:
        time.sleep(600)  # rank 2 sleeps here


def test_a_hang_names_the_collective_and_the_ranks_that_never_arrived():
    with pytest.raises(RankTimeout, match="ranks 0, 1, 2 of 4 stood still for 1 s") as caught:
        run_processes(_comes_apart, 4, timeout_s=100, still_s=1.0)
    zero, one, two, three = caught.value.standings
    assert str(zero.entered) == "in all_reduce(f32[3]), collective 1 of the group of ranks 0, 1; rank 1 never arrived"
    assert str(one.entered) == "in recv from rank 2; rank 2 never arrived"
    assert two.entered is None
    with open(__file__) as source:
        lines = source.read().splitlines()
    assert [lines[x.location.line - 1].partition("# ")[2] for x in (zero, one, two)] == [
        "rank 0 waits here",
        "rank 1 waits here",
        "rank 2 sleeps here",
    ]
    assert str(three) == "rank 3 has returned"
    assert all(str(standing) in str(caught.value) for standing in caught.value.standings)


def _holds_the_lock() -> None:
    if dist.get_rank() == 0:
        ctypes.PyDLL(None).sleep(600)  # a call that keeps the interpreter's lock
    dist.barrier()


@pytest.mark.slow
def test_a_rank_that_cannot_answer_is_still_told_from_those_that_wait_for_it():
    with pytest.raises(RankTimeout, match="ranks 0, 1 of 2 did not finish in 2 s") as caught:
        ProcessWorld(2, timeout_s=2).run(_holds_the_lock)
    zero, one = caught.value.standings
    assert str(zero) == "rank 0 does not say where it is"
    assert one.entered is not None
    assert (one.entered.call, one.entered.missing) == ("barrier()", (0,))
    assert "_holds_the_lock" in str(caught.value)


def _waits_for_nobody() -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3))
    else:
        dist.recv(torch.ones(3), (dist.get_rank() + 1) % 3)


def test_ranks_of_which_none_can_move_are_not_waited_for():
    with pytest.raises(RankTimeout, match=r"ranks 0, 1, 2 of 3 stood still for 0.5 s") as caught:
        run_processes(_waits_for_nobody, 3, timeout_s=100, still_s=0.5)
    assert [str(one.entered).partition(",")[0] for one in caught.value.standings[:2]] == [
        "in all_reduce(f32[3])",
        "in recv from rank 2; rank 2 never arrived",
    ]


@pytest.mark.slow
def test_ranks_that_are_all_in_collectives_are_not_waited_for_and_others_are():
    with pytest.raises(RankTimeout, match=r"ranks 0, 1, 2 of 3 stood still for 0.5 s"):
        run_processes(_waits_for_nobody, 3, timeout_s=100, stuck_s=0.5)

    def late():
        if dist.get_rank() == 0:
            time.sleep(2.0)
        dist.barrier()
        return dist.get_rank()

    assert run_processes(late, 2, timeout_s=100, stuck_s=0.3) == [0, 1]


_BUSY = "import time; end = time.process_time() + 2\nwhile time.process_time() < end: pass"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["a rank", "a child of a rank"])
def test_ranks_that_wait_for_one_that_works_do_not_stand_still(elsewhere):
    def works():
        if dist.get_rank() == 0 and elsewhere:
            subprocess.run([sys.executable, "-c", _BUSY], check=True)
        elif dist.get_rank() == 0:
            exec(_BUSY)
        dist.barrier()
        return dist.get_rank()

    assert run_processes(works, 2, timeout_s=100, still_s=0.5) == [0, 1]


def test_a_rank_that_waits_for_one_that_has_returned_is_told_so():
    with pytest.raises(RankFailure, match="rank 1 of 2 failed\n\nrank 0 had returned by then") as caught:
        run_processes(lambda: dist.barrier() if dist.get_rank() == 1 else None, 2)
    assert caught.value.rank == 1


def test_no_process_is_left_behind_after_failure_and_time_out():
    with pytest.raises(RankTimeout):
        run_processes(_hangs_on_one, 2, timeout_s=2)
    assert multiprocessing.active_children() == []


_CALLER = r"""
import os, time
from shardwise.worlds.world import run_processes

def rank():
    os.write(1, b"%d\n" % os.getpid())
    time.sleep(600)

run_processes(rank, 2, timeout_s=600)
"""


def test_ranks_die_with_a_caller_that_is_killed():
    caller = subprocess.Popen([sys.executable, "-c", _CALLER], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    with caller.stdout as lines:
        pids = [int(next(lines)), int(next(lines))]
        caller.kill()
        caller.wait()
    deadline = time.monotonic() + 20
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    """False for a process that is gone or a zombie that nobody has reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_that_has_a_group_is_refused():
    with fake_world(0, 2), pytest.raises(RuntimeError, match="has one already"):
        run_processes(_dies, 1)
