"""A program that starts its ranks itself: this process is one of them, the others are there already or imagined."""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.context
import os
from dataclasses import dataclass

import pytest
import torch.multiprocessing as mp
from torch.multiprocessing import spawn as imported_spawn

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.host.attribute_patch import environment
from shardwise.host.no_run import StartsProcesses
from shardwise.host.program_ranks import ranks_of_program
from shardwise.host.torchrun import TorchrunJob


@dataclass(frozen=True)
class Config:
    world_size: int = 4
    width: int = 4


@pytest.fixture
def ran():
    return []


@pytest.fixture
def on_rank(request):
    """``on_rank(2, 4)``: the rest of the test is rank 2 of 4."""

    def enter(rank, size, **job):
        world = TorchrunJob(size, rank, **job)
        for block in (environment(world.variables), ranks_of_program(world)):
            block.__enter__()
            request.addfinalizer(lambda block=block: block.__exit__(None, None, None))
        return world

    return enter


@pytest.mark.parametrize(
    "spawn",
    [mp.spawn, imported_spawn, lambda *args, **options: mp.start_processes(*args, **options)],
    ids=["mp", "imported", "start"],
)
def test_spawn_runs_the_function_once_with_this_ranks_number(spawn, on_rank, ran):
    on_rank(2, 4)
    spawn(lambda *args: ran.append(args), args=(4, "config"), nprocs=4)
    assert ran == [(2, 4, "config")]


def test_spawn_without_join_gives_something_to_join(on_rank, ran):
    on_rank(1, 2)
    context = mp.spawn(lambda rank: ran.append(rank), nprocs=2, join=False)
    while not context.join():
        pytest.fail("they have ended")
    assert ran == [1]


@pytest.mark.parametrize(
    "start",
    [multiprocessing.Process, mp.Process, multiprocessing.context.SpawnProcess],
    ids=["multiprocessing", "torch", "spawn"],
)
@pytest.mark.parametrize("named", [False, True], ids=["positional", "named"])
def test_of_a_process_for_each_rank_the_one_of_this_rank_is_run(start, named, on_rank, ran):
    on_rank(2, 3)

    def init_process(rank, size, fn):
        fn((rank, size))

    processes = []
    for rank in range(3):
        given = {"rank": rank, "size": 3, "fn": ran.append}
        process = start(target=init_process, **({"kwargs": given} if named else {"args": tuple(given.values())}))
        process.start()
        processes.append(process)
    for process in processes:
        process.join()
        assert process.exitcode == 0
        assert not process.is_alive()
    assert ran == [(2, 3)]


def test_in_a_world_of_one_the_function_is_told_of_one_rank(on_rank, ran):
    on_rank(0, 1)

    def train(rank, world_size, batch_size, args, config, settings):
        ran.append((rank, world_size, batch_size, args, config, settings))

    args = argparse.Namespace(nprocs=4, size=4, lr=4)
    mp.spawn(train, args=(4, 4, args, Config(), {"num_gpus": 4, "size": 4}), nprocs=4)
    alone = argparse.Namespace(nprocs=1, size=4, lr=4)
    assert ran == [(0, 1, 4, alone, Config(world_size=1), {"num_gpus": 1, "size": 4})]
    assert args.nprocs == 4, "the program's own is left alone"


def test_the_size_of_a_world_that_nobody_gave_is_what_the_program_starts(on_rank, ran):
    world = on_rank(0, 8, guessed=True)
    mp.spawn(lambda rank: ran.append(os.environ["WORLD_SIZE"]), nprocs=4)
    assert ran == ["4"]
    assert world.size == 4


@pytest.mark.parametrize(("command", "help"), [("check", "--world-size 3"), ("verify", "multiply to 3")])
def test_another_number_of_ranks_than_the_world_has_is_named(command, help, on_rank, ran):
    on_rank(0, 4, command=command)
    with pytest.raises(SpmdValueError, match=f"starts 3 processes, but {command} runs with 4 ranks") as refused:
        mp.spawn(lambda rank: ran.append(rank), nprocs=3)
    assert help in str(refused.value)
    assert not ran


def test_one_process_is_no_job(on_rank):
    on_rank(0, 8, guessed=True)
    with pytest.raises(SpmdValueError, match="the program starts 1 process, but"):
        mp.spawn(print, nprocs=1)


@pytest.mark.parametrize(
    "process",
    [
        lambda: multiprocessing.Process(target=print),
        lambda: multiprocessing.Process(target=lambda queue, count: None, args=(None, 0)),
        lambda: multiprocessing.Process(target=lambda rank: None, args=("zero",)),
        lambda: type("Worker", (multiprocessing.Process,), {"run": print})(),
    ],
    ids=["nothing", "no rank", "text", "subclass"],
)
def test_a_process_that_is_no_rank_is_refused(process, on_rank):
    on_rank(0, 2)
    with pytest.raises(StartsProcesses, match="that are no ranks"):
        process().start()


@pytest.mark.parametrize("make", [multiprocessing.Queue, multiprocessing.SimpleQueue])
def test_what_other_ranks_would_put_into_a_queue_is_not_waited_for(make, on_rank, monkeypatch):
    monkeypatch.setattr("shardwise.host.program_ranks._PATIENCE_S", 0.2)
    on_rank(0, 2)
    results = make()
    mp.spawn(lambda rank: results.put(rank), nprocs=2)
    assert results.get() == 0
    with pytest.raises(StartsProcesses, match="what another of its ranks would put into a queue"):
        results.get()


def test_how_processes_start_may_be_said_and_is_nothing(on_rank):
    on_rank(0, 2)
    mp.set_start_method("spawn")
    multiprocessing.set_start_method("fork")
    with pytest.raises(ValueError, match="nonsense"):
        mp.set_start_method("nonsense")
