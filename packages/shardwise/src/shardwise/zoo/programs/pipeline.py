"""Pipeline parallelism with the 1F1B schedule (PipeDream, Megatron-LM): stages of layers, one batch in several parts.

Mesh:    pp outermost: two neighbours exchange one activation a micro-batch, which the slowest links can carry.
Choose:  when a model does not fit in a node even with tensor parallelism; with many micro-batches, so that the
         bubble of pp - 1 of them is small.
Breaks:  a schedule in which two stages wait for each other; a gradient sent to the stage that has not asked for it; a
         loss that is divided by the micro-batches of a rank and then again by those of all.
Memory:  LAYERS / pp * D * D
Activations: min(pp, MICRO) * 2 * LAYERS / pp * B / MICRO * D
Traffic: pp = recv(B * D)
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, V
from shardwise.zoo.messages import ACTIVATION, GRADIENT, Messages
from shardwise.zoo.program import Tensors, ZooProgram, main, type_of, typed
from shardwise.zoo.schedule import Task, TaskKind, alternating

B, D, LAYERS, MICRO = 8, 6, 4, 4


def layers(weights: Tensor, x: Tensor) -> Tensor:
    for weight in weights.unbind(0):
        x = x + torch.tanh(F.linear(x, weight))
    return x


def error(y: Tensor, targets: Tensor) -> Tensor:
    return (y - targets).square().sum() / B


def single(w: Tensors, x: Tensors) -> Tensor:
    return error(layers(w.layers, x.tokens), x.targets)


def order(rank: int, ranks: int, micros: int = MICRO) -> list[Task]:
    """Forward until the stages behind have work, then one backward for every forward."""
    forward = [Task(TaskKind.FORWARD, micro, rank) for micro in range(micros)]
    backward = [Task(TaskKind.BACKWARD, micro, rank) for micro in range(micros)]
    return alternating(forward, backward, ranks - rank - 1)


class Stage:
    """This rank's layers, and the micro-batches that have gone forward through them and not yet backward.

    ``between`` is the type of what goes from stage to stage, ``loss_type`` that of ``error``'s result.
    """

    def __init__(
        self,
        layers: Callable[[Tensor], Tensor],
        error: Callable[[Tensor, Tensor], Tensor],
        mesh: DeviceMesh,
        *,
        between: str,
        loss_type: str = "f64[] {pp: V}",
    ) -> None:
        self.layers, self.error = layers, error
        self.messages = Messages(mesh, "pp", type_of(between))
        self.rank, self.ranks = self.messages.rank, self.messages.ranks
        outward = mesh.mesh_dim_names or ()
        self.apart = outward[: outward.index("pp") + 1]
        self.waiting: dict[int, tuple[Tensor, Tensor]] = {}
        self.loss = typed(torch.zeros((), dtype=torch.float64), type_of(loss_type))

    def forward(self, micro: int, tokens: Tensor, targets: Tensor) -> None:
        x = tokens if self.rank == 0 else self.messages.receive(tokens, self.rank - 1, ACTIVATION).requires_grad_()
        y = self.layers(x)
        if self.rank == self.ranks - 1:
            y = self.error(y, targets)
            self.loss += y.detach()
        else:
            self.messages.send(y.detach(), self.rank + 1, ACTIVATION)
        self.waiting[micro] = x, y

    def backward(self, micro: int) -> None:
        x, y = self.waiting.pop(micro)
        if self.rank == self.ranks - 1:
            spmd.reinterpret(y, "pp", src=V, dst=P).backward()  # type: ignore[no-untyped-call]
        else:
            y.backward(self.messages.receive(y, self.rank + 1, GRADIENT))  # type: ignore[no-untyped-call]
        if self.rank > 0:
            assert x.grad is not None
            self.messages.send(x.grad, self.rank - 1, GRADIENT)


def one_forward_one_backward(stage: Stage, tokens: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Train the stage on all micro-batches; the loss of all of them, which the last stage has."""
    with spmd.set_current_mesh(local_axes=stage.apart):  # a stage is a program of its own
        for task in order(stage.rank, stage.ranks, len(tokens)):
            if task.kind is TaskKind.FORWARD:
                stage.forward(task.micro, tokens[task.micro], targets[task.micro])
            else:
                stage.backward(task.micro)
    stage.messages.finish()
    return spmd.reinterpret(stage.loss, "pp", src=V, dst=P)


def step(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    stage = Stage(partial(layers, w.layers), error, mesh, between="f64[2, 6] {pp: V}")
    return one_forward_one_backward(stage, x.tokens.chunk(MICRO), x.targets.chunk(MICRO))


PROGRAM = ZooProgram(
    mesh={"pp": 2},
    shared=["pp"],
    weights={"layers": "f64[4@pp, 6, 6]"},
    inputs={"tokens": "f64[8, 6] {pp: R}", "targets": "f64[8, 6] {pp: R}"},
    single=single,
    step=step,
    order=order,
)

if __name__ == "__main__":
    main(PROGRAM)
