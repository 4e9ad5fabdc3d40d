"""Does a program on four real processes compute what it computes on one? Runs both and compares them in numbers.

The four ranks form the mesh dp=2, tp=2. Losses must agree on every rank; each parameter's gradient, reassembled from
the pieces of the tp ranks, must agree for every dp rank. The reference is the same program on one rank, where every
collective is the identity.
"""

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shardwise.simulator.world import CollectiveMismatch, Deadlock, InProcessWorld, run_processes

DP, TP = 2, 2
SIZES = {"layers": 2, "width": 32, "heads": 4, "kv-heads": 2, "hidden": 48, "vocab": 128, "batch": 8, "length": 16}
MODULES = ("train", "model", "layers", "data", "parallel")


@dataclass(frozen=True)
class Job:
    """One program to run: the path of its train.py, and the options for it."""

    script: Path
    args: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What one rank got: the losses of the steps, the gradients of the last one; or the traceback it died of."""

    losses: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    crash: str | None = None


@dataclass(frozen=True)
class Difference:
    """How far a run is from its reference, relative to the reference's size; 0 where they agree.

    ``losses`` has one entry per step. ``gradient`` is the largest over all parameters, found at ``parameter``.
    ``replicas`` is the largest difference between ranks in what must be equal on them, whatever the reference says.
    """

    losses: tuple[float, ...]
    gradient: float
    parameter: str
    replicas: float

    @property
    def largest(self) -> float:
        return max(*self.losses, self.gradient)


def run_on(world_size: int, jobs: list[Job], timeout_s: float = 120) -> list[list[Outcome]]:
    """For each job, the outcome on each of ``world_size`` processes. All jobs share one start of the processes."""
    by_rank = run_processes(_run_jobs, world_size, jobs, timeout_s=timeout_s)
    return [list(ranks) for ranks in zip(*by_rank, strict=True)]


def hangs(job: Job) -> str:
    """How four ranks come to a stop, in one line; empty if they do not.

    All ranks run in one process, which sees that they wait for each other; real ones would just stand.
    """
    with _imported(job) as train, contextlib.redirect_stdout(io.StringIO()):
        args = train.parse([*(f"--{name}={size}" for name, size in SIZES.items()), *job.args])
        try:
            InProcessWorld(DP * TP).run(train.train, args)
        except (Deadlock, CollectiveMismatch) as error:
            return str(error).splitlines()[0]
    return ""


def compare(ranks: list[Outcome], reference: Outcome) -> Difference:
    """The difference between a dp x tp run and the run on one rank."""
    losses = tuple(
        max(abs(rank.losses[step] - expected) / abs(expected) for rank in ranks)
        for step, expected in enumerate(reference.losses)
    )
    gradient, where, replicas = 0.0, "", 0.0
    for name, expected in reference.gradients.items():
        wholes = []
        for row in range(DP):
            pieces = [rank.gradients[name] for rank in ranks[row * TP : (row + 1) * TP]]
            split = [dim for dim in range(expected.ndim) if pieces[0].shape[dim] != expected.shape[dim]]
            wholes += [torch.cat(pieces, split[0])] if split else pieces
        for whole in wholes:
            replicas = max(replicas, _relative(whole, wholes[0]))
            if (error := _relative(whole, expected)) > gradient:
                gradient, where = error, name
    return Difference(losses, gradient, where, replicas)


def _relative(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def _run_jobs(jobs: list[Job]) -> list[Outcome]:
    torch.set_num_threads(1)
    return [_run_job(job) for job in jobs]


def _run_job(job: Job) -> Outcome:
    try:
        with _imported(job) as train, contextlib.redirect_stdout(io.StringIO()):
            model, losses = train.train(train.parse([*(f"--{name}={size}" for name, size in SIZES.items()), *job.args]))
    except Exception:
        return Outcome(crash=traceback.format_exc())
    return Outcome(losses, {name: parameter.grad.detach().clone() for name, parameter in model.named_parameters()})


@contextlib.contextmanager
def _imported(job: Job) -> Iterator[Any]:
    """The program's module ``train``. The programs are copies of each other, so each one needs its own imports."""
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.path.insert(0, os.fspath(job.script.parent))
    try:
        yield importlib.import_module("train")
    finally:
        sys.path.pop(0)
