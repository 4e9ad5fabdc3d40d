"""Interleaved pipeline parallelism (Megatron-LM): every rank has several short stages, and the pipeline goes round.

Mesh:    pp outermost, a ring: the last rank sends to the first, which has the next stage. A micro-batch goes round once
         for every stage of a rank, so more is sent than with 1F1B, by the number of those.
Choose:  when micro-batches are too few to hide the bubble: a rank waits for short stages, so the bubble is as many
         times shorter as it has stages.
Breaks:  layers that lie in plain order: rank 0 of 2 has layers 0, 1, 4, 5 of 8, as the type of the weights says; with
         two ranks, activations and gradients between the same two, told apart by nothing; a number of micro-batches
         that is no multiple of pp.
Memory:  LAYERS / pp * D * D
Gradients: LAYERS / pp * D * D + B / MICRO * D
Activations: (min(3 * pp - 1, CHUNKS * MICRO) * 2 * LAYERS / (pp * CHUNKS) + (pp > 1) * (CHUNKS - 1) * pp) * B /
             MICRO * D
Traffic: pp = recv((2 * CHUNKS - 1) * B * D)
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, V
from shardwise.zoo.messages import ACTIVATION, GRADIENT, Messages
from shardwise.zoo.program import Tensors, ZooProgram, main, type_of
from shardwise.zoo.programs.pipeline import error, layers
from shardwise.zoo.schedule import Task, TaskKind, alternating

B, D, LAYERS, MICRO, CHUNKS = 8, 6, 8, 4, 2


def single(w: Tensors, x: Tensors) -> Tensor:
    return error(layers(w.layers.flatten(0, 1), x.tokens), x.targets)


def order(rank: int, ranks: int) -> list[Task]:
    """As many micro-batches as there are ranks go through one chunk, then through the next; backward the other way."""
    forward, backward = [], []
    for first in range(0, MICRO, ranks):
        for chunk in range(CHUNKS):
            for micro in range(first, min(first + ranks, MICRO)):
                forward.append(Task(TaskKind.FORWARD, micro, chunk * ranks + rank))
                backward.append(Task(TaskKind.BACKWARD, micro, (CHUNKS - 1 - chunk) * ranks + rank))
    return alternating(forward, backward, 2 * (ranks - rank - 1) + (CHUNKS - 1) * ranks)


class Stages:
    """This rank's stages, and what has gone forward through them and not yet backward, by micro-batch and stage."""

    def __init__(self, weights: Tensor, mesh: DeviceMesh) -> None:
        self.messages = Messages(mesh, "pp", type_of("f64[2, 6] {pp: V}"))
        self.rank, self.ranks, self.weights = self.messages.rank, self.messages.ranks, weights
        self.last = CHUNKS * self.ranks - 1
        self.waiting: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.loss = spmd.assert_type(torch.zeros((), dtype=torch.float64), {"pp": V})

    def forward(self, micro: int, stage: int, tokens: Tensor, targets: Tensor) -> None:
        x = tokens if stage == 0 else self.messages.receive(tokens, stage - 1, ACTIVATION).requires_grad_()
        y = layers(self.weights[stage // self.ranks], x)
        if stage == self.last:
            y = error(y, targets)
            self.loss += y.detach()
        else:
            self.messages.send(y.detach(), stage + 1, ACTIVATION)
        self.waiting[micro, stage] = x, y

    def backward(self, micro: int, stage: int) -> None:
        x, y = self.waiting.pop((micro, stage))
        if stage == self.last:
            spmd.reinterpret(y, "pp", src=V, dst=P).backward()  # type: ignore[no-untyped-call]
        else:
            y.backward(self.messages.receive(y, stage + 1, GRADIENT))  # type: ignore[no-untyped-call]
        if stage > 0:
            assert x.grad is not None
            self.messages.send(x.grad, stage - 1, GRADIENT)


@spmd.local()  # each stage is a program of its own: no dim is cut over all of them
def run(stages: Stages, tokens: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for task in order(stages.rank, stages.ranks):
        if task.kind is TaskKind.FORWARD:
            stages.forward(task.micro, task.stage, tokens[task.micro], targets[task.micro])
        else:
            stages.backward(task.micro, task.stage)
    stages.messages.finish()


def step(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    stages = Stages(w.layers, mesh)
    run(stages, x.tokens.chunk(MICRO), x.targets.chunk(MICRO))
    return spmd.reinterpret(stages.loss, "pp", src=V, dst=P)


PROGRAM = ZooProgram(
    mesh={"pp": 2},
    shared=["pp"],
    weights={"layers": "f64[2, 4@pp, 6, 6]"},
    inputs={"tokens": "f64[8, 6] {pp: R}", "targets": "f64[8, 6] {pp: R}"},
    single=single,
    step=step,
    order=order,
)

if __name__ == "__main__":
    main(PROGRAM)
