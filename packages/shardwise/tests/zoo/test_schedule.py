"""Schedules of pipelines: they end, wait as long as their papers say, and are drawn as they are run."""

from __future__ import annotations

import time

import pytest

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.drawing.text import text_of
from shardwise.zoo.catalogue import entry, names
from shardwise.zoo.program import ZooProgram
from shardwise.zoo.programs import pipeline, pipeline_interleaved, pipeline_zero_bubble
from shardwise.zoo.schedule import Order, Task, TaskKind, alternating, times_of
from shardwise.zoo.schedule_picture import schedule_picture

RANKS = (1, 2, 4)


def program(name: str) -> ZooProgram:
    return entry(name).program


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("order", [pipeline.order, pipeline_interleaved.order, pipeline_zero_bubble.order])
def test_every_stage_does_everything_once(order: Order, ranks: int) -> None:
    tasks = [timed.task for rank in times_of(order, ranks).ranks for timed in rank]
    assert len(tasks) == len(set(tasks))
    stages = {task.stage for task in tasks}
    kinds = {task.kind for task in tasks}
    assert {(task.kind, task.micro, task.stage) for task in tasks} == {
        (kind, micro, stage) for kind in kinds for micro in range(pipeline.MICRO) for stage in stages
    }
    assert all(task.stage % ranks == rank for rank in range(ranks) for task in order(rank, ranks))


@pytest.mark.parametrize("ranks", RANKS)
def test_bubbles_are_those_of_the_papers(ranks: int) -> None:
    """In units of a stage's forward pass: 3 (pp - 1) for 1F1B; the same of stages CHUNKS times shorter, if they are
    interleaved; and 1 + 1 - 1 for each of pp - 1 in ZB-H1, forward, backward of the input, less that of the weights."""
    for order, idle in (
        (pipeline.order, 3 * (ranks - 1)),
        (pipeline_interleaved.order, 3 * (ranks - 1)),
        (pipeline_zero_bubble.order, ranks - 1),
    ):
        times = times_of(order, ranks)
        assert [times.idle(rank) for rank in range(ranks)] == [idle] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_zero_bubble_keeps_no_more_activations_than_1f1b_on_its_first_rank(ranks: int) -> None:
    most = times_of(pipeline.order, ranks).held(0)
    times = times_of(pipeline_zero_bubble.order, ranks)
    assert most == min(ranks, pipeline.MICRO)
    assert {times.held(rank) for rank in range(ranks)} == {most}


def test_ranks_that_wait_for_each_other_are_named() -> None:
    def backward_first(rank: int, ranks: int) -> list[Task]:
        tasks = pipeline.order(rank, ranks)
        return tasks if rank else list(reversed(tasks))

    with pytest.raises(SpmdValueError, match=r"never ends: rank 0 with B3 of stage 0, rank 1 with F0 of stage 1"):
        times_of(backward_first, 2)


def test_alternating() -> None:
    first = [Task(TaskKind.FORWARD, micro, 0) for micro in range(3)]
    second = [Task(TaskKind.BACKWARD, micro, 0) for micro in range(3)]
    assert " ".join(map(str, alternating(first, second, 1))) == "F0 F1 B0 F2 B1 B2"
    assert " ".join(map(str, alternating(first, second, 9))) == "F0 F1 F2 B0 B1 B2"


@pytest.mark.parametrize("ranks", [3, 5, 8])
@pytest.mark.parametrize("order", [pipeline.order, pipeline_interleaved.order, pipeline_zero_bubble.order])
def test_it_ends_whatever_the_number_of_ranks(order: Order, ranks: int) -> None:
    times = times_of(order, ranks)
    assert {timed.task.micro for rank in times.ranks for timed in rank} == set(range(pipeline.MICRO))


def test_the_picture_shows_every_unit() -> None:
    shown = text_of(schedule_picture(pipeline_zero_bubble.order, 2))
    assert "0 │ F0 │ F1 │    │ B0 │ W0 │ F2 │" in shown
    assert "1 │    │ F0 │ B0 │ F1 │ B1 │ W0 │" in shown
    assert "units of 13 that a rank waits: 1 on every rank\n" in shown
    rows = [line for line in text_of(schedule_picture(pipeline_interleaved.order, 2)).splitlines() if "F0'" in line]
    assert len(rows) == 3, "a row for each rank, and what F0' means"
    assert all(len(line) <= 100 for line in rows)


@pytest.mark.parametrize("ranks", [4, 7])
@pytest.mark.parametrize("order", [pipeline.order, pipeline_interleaved.order, pipeline_zero_bubble.order])
def test_a_task_starts_as_soon_as_its_rank_is_free_and_what_it_needs_is_done(order: Order, ranks: int) -> None:
    times = times_of(order, ranks).ranks
    done = {timed.task: timed.end for rank in times for timed in rank}
    stages = 1 + max(task.stage for task in done)
    for rank, tasks in enumerate(times):
        assert [timed.task for timed in tasks] == list(order(rank, ranks))
        for before, timed in zip([None, *tasks], tasks, strict=False):
            needed = timed.task.needs(stages)
            assert timed.start == max(before.end if before else 0, done[needed] if needed else 0)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("ranks", [64, 1000])
@pytest.mark.parametrize("order", [pipeline.order, pipeline_interleaved.order, pipeline_zero_bubble.order])
def test_of_a_schedule_on_many_ranks_a_part_is_drawn_and_the_rest_said(order: Order, ranks: int) -> None:
    started = time.process_time()
    picture = schedule_picture(order, ranks)
    assert time.process_time() - started < 20, "it took minutes"
    shown = text_of(picture)
    units = times_of(order, ranks).units
    assert len(shown) < 30_000
    assert len(picture.description) < 3_000
    assert f"7 of {ranks} ranks are drawn" in shown
    assert " are left out" in shown
    for rank in (0, 5, ranks - 1):
        rows = [line for line in shown.splitlines() if line.split("│")[0].strip() == str(rank)]
        assert len(rows) <= 8
        assert "F0" in "".join(rows), f"of rank {rank} it is seen when it works"
        assert "B3" in "".join(rows)
    assert f"rank {ranks - 1} from unit {ranks - 1} to " in " ".join(shown.split())
    assert f"units of {units} that a rank waits: " in shown


def test_a_schedule_on_more_ranks_than_anybody_has_is_not_computed() -> None:
    assert "A schedule on 100000 ranks is not drawn" in text_of(schedule_picture(pipeline.order, 100_000))


def test_ranks_that_keep_as_much_are_told_together() -> None:
    assert "on ranks 0 to 4, 3 on rank 5, 2 on rank 6, 1 on rank 7" in " ".join(
        text_of(schedule_picture(pipeline.order, 8)).split()
    )


def test_a_program_runs_the_schedule_that_is_drawn() -> None:
    drawn = {name for name in names() if entry(name).program.order is not None}
    assert drawn == {name for name in names() if "pp" in entry(name).program.mesh}
