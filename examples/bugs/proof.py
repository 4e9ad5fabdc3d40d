"""Does a program on four real processes compute what it computes on one? Runs both and compares them in numbers.

The four ranks form a mesh of 2 x 2. Losses must agree on every rank; each parameter's gradient as it enters the
optimizer, reassembled from the pieces along the inner axis, must agree for every rank of the outer one. The reference
is the same program on one rank, where every collective is the identity.
"""

import contextlib
import importlib
import io
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from programs import INNER, OUTER, PROGRAMS, Program
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shardwise.interop.running.recording import heard_by
from shardwise.worlds.world import CollectiveMismatch, Deadlock, InProcessWorld, run_processes

RANKS = OUTER * INNER
MODULES = ("train", "model", "layers", "data", "parallel", "common")


@dataclass(frozen=True)
class Job:
    """One program to run: the path of its script, further options, and the name of what it is a copy of."""

    script: Path
    args: tuple[str, ...] = ()
    copy_of: str = "gpt"

    @property
    def program(self) -> Program:
        return PROGRAMS[self.copy_of]


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
        return max((*self.losses, self.gradient))


def run_on(world_size: int, jobs: list[Job], timeout_s: float = 120) -> list[list[Outcome]]:
    """For each job, the outcome on each of ``world_size`` processes. All jobs share one start of the processes."""
    by_rank = run_processes(_run_jobs, world_size, jobs, timeout_s=timeout_s)
    return [list(ranks) for ranks in zip(*by_rank, strict=True)]


def hangs(job: Job) -> str:
    """How four ranks come to a stop, in one line; empty if they do not.

    All ranks run in one process, which sees that they wait for each other; real ones would just stand.
    """
    with _fresh_imports(job), contextlib.redirect_stdout(io.StringIO()):
        train = importlib.import_module("train")
        args = train.parse([*job.program.numbers, *job.args])
        try:
            InProcessWorld(RANKS).run(train.train, args)
        except (Deadlock, CollectiveMismatch) as error:
            return str(error).splitlines()[0]
    return ""


def compare(ranks: list[Outcome], reference: Outcome) -> Difference:
    """The difference between a run on 2 x 2 ranks and the run on one rank."""
    losses = tuple(
        max(abs(rank.losses[step] - expected) / abs(expected) for rank in ranks)
        for step, expected in enumerate(reference.losses)
    )
    gradient, where, replicas = 0.0, "", 0.0
    for name, expected in reference.gradients.items():
        wholes = []
        for row in range(OUTER):
            pieces = [rank.gradients[name] for rank in ranks[row * INNER : (row + 1) * INNER]]
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
    run = _run_gpt if job.copy_of == "gpt" else _run_script
    try:
        with _fresh_imports(job), contextlib.redirect_stdout(io.StringIO()):
            return run(job)
    except Exception:
        return Outcome(crash=traceback.format_exc())


def _run_gpt(job: Job) -> Outcome:
    train = importlib.import_module("train")
    model, losses = train.train(train.parse([*job.program.numbers, *job.args]))
    return Outcome(losses, {name: parameter.grad.detach().clone() for name, parameter in model.named_parameters()})


class _Losses(list[float]):
    """Hears the values that a program names "mean loss"."""

    def hear(self, kind: str, name: str, x: Tensor) -> None:
        if (kind, name) == ("value", "mean loss"):
            self.append(x.item())


def _run_script(job: Job) -> Outcome:
    """Run as by ``python``, in the process group of this process; the script's ``model`` names the gradients."""
    losses, gradients = _Losses(), {}

    def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
            gradients[weight] = weight.grad.detach().clone()

    program = job.program
    one = dict.fromkeys(program.axes, 1)
    options = program.axis_options(program.mesh if torch.distributed.get_world_size() == RANKS else one)
    hook = register_optimizer_step_pre_hook(keep)
    outside = {name: value for name, value in os.environ.items() if name != "RANK"}
    try:
        with (
            mock.patch.object(sys, "argv", [str(job.script), *options, *job.args]),
            mock.patch.dict(os.environ, outside, clear=True),
            mock.patch("torch.distributed.destroy_process_group"),
            heard_by(losses),
        ):
            names = runpy.run_path(str(job.script), run_name="__main__")
    finally:
        hook.remove()
        torch.set_default_dtype(torch.float32)
    return Outcome(losses, {name: gradients[weight] for name, weight in names["model"].named_parameters()})


@contextlib.contextmanager
def _fresh_imports(job: Job) -> Iterator[None]:
    """Imports come from the job's folder. Programs are copies of each other, so each one needs its own."""
    _forget_imports()
    sys.path.insert(0, os.fspath(job.script.parent))
    try:
        yield
    finally:
        sys.path.pop(0)
        _forget_imports()


def _forget_imports() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)
