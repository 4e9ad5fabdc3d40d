"""Pipeline parallelism with the 1F1B schedule (PipeDream, Megatron-LM): stages of layers, one batch in several parts.

Mesh:    pp outermost: two neighbours exchange one activation a micro-batch, which the slowest links can carry.
Choose:  when a model does not fit in a node even with tensor parallelism; with many micro-batches, so that the
         bubble of pp - 1 of them is small.
Breaks:  a schedule in which two stages wait for each other; a gradient sent to the stage that has not asked for it; a
         loss that is divided by the micro-batches of a rank and then again by those of all.
Memory:  LAYERS / pp * D * D
Traffic: pp = send(B * D) / (pp - 1)
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, V
from shardwise.zoo.program import Tensors, ZooProgram, main, type_of, typed

B, D, LAYERS, MICRO = 8, 6, 4, 4


def layers(weights: Tensor, x: Tensor) -> Tensor:
    for weight in weights.unbind(0):
        x = x + torch.tanh(F.linear(x, weight))
    return x


def error(y: Tensor, targets: Tensor) -> Tensor:
    return (y - targets).square().sum() / B


def single(w: Tensors, x: Tensors) -> Tensor:
    return error(layers(w.layers, x.tokens), x.targets)


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
        self.layers, self.error, self.between = layers, error, type_of(between)
        self.group, self.number, self.count = mesh.get_group("pp"), mesh.get_local_rank("pp"), mesh["pp"].size()
        outward = mesh.mesh_dim_names or ()
        self.apart = outward[: outward.index("pp") + 1]
        self.waiting: deque[tuple[Tensor, Tensor]] = deque()
        self.sending: list[Any] = []
        self.loss = typed(torch.zeros((), dtype=torch.float64), type_of(loss_type))

    def send(self, x: Tensor, stage: int) -> None:
        """Does not wait: the other stage may be sending to this one."""
        self.sending.append((dist.isend(x, group=self.group, group_dst=stage), x))

    def receive(self, like: Tensor, stage: int) -> Tensor:
        x = torch.empty(like.shape, dtype=like.dtype)
        dist.recv(x, group=self.group, group_src=stage)
        return typed(x, self.between)

    def forward(self, tokens: Tensor, targets: Tensor) -> None:
        first, last = self.number == 0, self.number == self.count - 1
        x = tokens if first else self.receive(tokens, self.number - 1).requires_grad_()
        y = self.layers(x)
        if last:
            y = self.error(y, targets)
            self.loss += y.detach()
        else:
            self.send(y.detach(), self.number + 1)
        self.waiting.append((x, y))

    def backward(self) -> None:
        x, y = self.waiting.popleft()
        if self.number == self.count - 1:
            spmd.reinterpret(y, "pp", src=V, dst=P).backward()  # type: ignore[no-untyped-call]
        else:
            y.backward(self.receive(y, self.number + 1))  # type: ignore[no-untyped-call]
        if self.number > 0:
            assert x.grad is not None
            self.send(x.grad, self.number - 1)


def one_forward_one_backward(stage: Stage, tokens: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Train the stage on all micro-batches; the loss of all of them, which the last stage has."""
    parts = list(zip(tokens, targets, strict=True))
    ahead = min(stage.count - stage.number - 1, len(parts))
    with spmd.set_current_mesh(local_axes=stage.apart):  # a stage is a program of its own
        for part in parts[:ahead]:
            stage.forward(*part)
        for part in parts[ahead:]:
            stage.forward(*part)
            stage.backward()
        for _ in range(ahead):
            stage.backward()
    for work, _ in stage.sending:
        work.wait()
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
)

if __name__ == "__main__":
    main(PROGRAM)
