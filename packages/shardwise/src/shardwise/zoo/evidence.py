"""A program of the zoo on real processes, beside its program of one device: all that training makes is compared.

What a rank holds and receives is counted on the way, to stand beside the formulas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.uniformity.calls import Trace, TracedCall
from shardwise.uniformity.collective_costs import costed
from shardwise.uniformity.collective_trace import CollectiveRecorder
from shardwise.uniformity.kept_calls import KeptCalls
from shardwise.worlds.world import ProcessWorld

from .kept_memory import KeptMemory
from .program import STEPS, Trained, ZooProgram, device_mesh, piece, train, train_single, type_of

TOLERANCE = 1e-9
"""Relative: sums of float64 in another order agree to about 1e-15."""


@dataclass(frozen=True)
class Apart:
    """What a rank has, and one device has not: ``what`` of ``step`` on ``rank``, off by ``largest``."""

    what: str
    step: int
    rank: int
    largest: float

    def __str__(self) -> str:
        return f"{self.what} of step {self.step} on rank {self.rank} is off by up to {self.largest:.2g}"


@dataclass(frozen=True)
class Evidence:
    """``losses`` of both runs by step, how many tensors were ``compared``, and where they differ. Of every rank the
    bytes of weights that it ``held``, of gradients and activations that it ``kept``, of the optimizer's ``state``, and
    those ``received`` in a step, by axis."""

    losses: tuple[tuple[float, float], ...]
    compared: int
    disagreements: tuple[Apart, ...]
    held: tuple[int, ...]
    kept: tuple[KeptMemory, ...]
    state: tuple[int, ...]
    received: tuple[Mapping[str, float], ...]


def run(program: ZooProgram, sizes: Mapping[str, int], *, timeout_s: float = 120.0) -> Evidence:
    """Train on gloo processes, one for each rank of a mesh of these sizes, and on one device.

    Errors: RankFailure, RankTimeout if a rank raises or hangs.
    """
    world = ProcessWorld(math.prod(sizes.values()), timeout_s=timeout_s)
    ranks, received, kept = zip(*world.run(_on_a_rank, program, tuple(sizes.items())), strict=True)
    alone = train_single(program)
    losses = tuple((float(here), float(there)) for here, there in zip(ranks[0].losses, alone.losses, strict=True))
    pairs = [pair for rank, trained in enumerate(ranks) for pair in _pairs(program, sizes, rank, trained, alone)]
    wrong = tuple(found for pair in pairs if (found := _compare(*pair)) is not None)
    held = tuple(sum(x.numel() * x.element_size() for x in trained.weights.values()) for trained in ranks)
    return Evidence(losses, len(pairs), wrong, held, kept, tuple(trained.state_bytes for trained in ranks), received)


def _on_a_rank(program: ZooProgram, sizes: tuple[tuple[str, int], ...]) -> tuple[Trained, dict[str, float], KeptMemory]:
    """Twice, since a recorder of calls keeps what they are given."""
    mesh, kept, calls = device_mesh(dict(sizes)), KeptMemory(), KeptCalls()
    train(program, mesh, kept=kept)
    with CollectiveRecorder(calls, dist.get_rank()).recording():
        trained = train(program, mesh)
    return trained, received_bytes(Trace(dist.get_rank(), calls.events)), kept


def received_bytes(trace: Trace) -> dict[str, float]:
    """What the calls of a rank bring it in a step, by axis: collectives once round a ring, messages as they are.

    Sums of one number are left out: those of the loss, which is summed for printing.
    """
    tensors = [event for event in trace.events if isinstance(event, TracedCall) and event.shapes != ((),)]
    found: Counter[str] = Counter()
    for call in costed([Trace(trace.rank, tensors)])[0]:
        found[call.axis] += call.bytes
    return {axis: count / STEPS for axis, count in found.items() if count}


Pair = tuple[str, int, int, Tensor, Tensor]


def _pairs(
    program: ZooProgram, sizes: Mapping[str, int], rank: int, trained: Trained, alone: Trained
) -> Iterator[Pair]:
    """What this rank has beside its piece of what one device has."""
    place: dict[str, tuple[int, int]] = {}
    for seen in program.meshes(sizes):
        coordinates = torch.unravel_index(torch.tensor(rank), tuple(seen.values()))
        place |= {axis: (int(at), size) for (axis, size), at in zip(seen.items(), coordinates, strict=True)}
    types = {name: type_of(text) for name, text in program.weights.items()}
    last = len(trained.losses) - 1
    state_types = {**types, **{name: type_of(text) for name, text in program.state.items()}}
    for step, (loss, whole_loss) in enumerate(zip(trained.losses, alone.losses, strict=True)):
        yield "the loss", step, rank, loss, whole_loss
    for step, (gradients, wholes) in enumerate(zip(trained.gradients, alone.gradients, strict=False)):
        for name, gradient in gradients.items():
            yield f"the gradient of {name}", step, rank, gradient, piece(wholes[name], types[name], place)
    for step, (momenta, wholes) in enumerate(zip(trained.momenta, alone.momenta, strict=True)):
        for name, momentum in momenta.items():
            yield f"the momentum of {name}", step, rank, momentum, piece(wholes[name], state_types[name], place)
    for name, weight in trained.weights.items():
        yield f"the weight {name}", last, rank, weight, piece(alone.weights[name], types[name], place)


def _compare(what: str, step: int, rank: int, here: Tensor, there: Tensor) -> Apart | None:
    if here.shape != there.shape:
        return Apart(what, step, rank, math.inf)
    largest = float((here - there).abs().max()) if here.numel() else 0.0
    scale = float(there.abs().max()) if there.numel() else 0.0
    return None if largest <= TOLERANCE * max(1.0, scale) else Apart(what, step, rank, largest)
