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
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, V
from shardwise.zoo.program import Tensors, ZooProgram, main, total

B, D, LAYERS, MICRO = 8, 6, 4, 4


def layers(weights: Tensor, x: Tensor) -> Tensor:
    for weight in weights.unbind(0):
        x = x + torch.tanh(F.linear(x, weight))
    return x


def single(w: Tensors, x: Tensors) -> Tensor:
    return (layers(w.layers, x.tokens) - x.targets).square().sum() / B


class Stage:
    """This rank's layers, and the micro-batches that have gone forward through them and not yet backward."""

    def __init__(self, weights: Tensor, mesh: DeviceMesh) -> None:
        self.weights, self.group = weights, mesh.get_group("pp")
        self.number, self.count = mesh.get_local_rank("pp"), mesh["pp"].size()
        self.waiting: deque[tuple[Tensor, Tensor]] = deque()
        self.sending: list[Any] = []
        self.loss = spmd.assert_type(torch.zeros((), dtype=torch.float64), {"pp": V})

    def send(self, x: Tensor, stage: int) -> None:
        """Does not wait: the other stage may be sending to this one."""
        self.sending.append((dist.isend(x, group=self.group, group_dst=stage), x))

    def receive(self, like: Tensor, stage: int) -> Tensor:
        x = torch.empty(like.shape, dtype=like.dtype)
        dist.recv(x, group=self.group, group_src=stage)
        return spmd.assert_type(x, {"pp": V})

    def forward(self, tokens: Tensor, targets: Tensor) -> None:
        first, last = self.number == 0, self.number == self.count - 1
        x = tokens if first else self.receive(tokens, self.number - 1).requires_grad_()
        y = layers(self.weights, x)
        if last:
            y = (y - targets).square().sum() / B
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


@spmd.local()  # each stage is a program of its own: no dim is cut over all of them
def schedule(stage: Stage, parts: list[tuple[Tensor, Tensor]]) -> None:
    ahead = min(stage.count - stage.number - 1, MICRO)
    for tokens, targets in parts[:ahead]:
        stage.forward(tokens, targets)
    for tokens, targets in parts[ahead:]:
        stage.forward(tokens, targets)
        stage.backward()
    for _ in range(ahead):
        stage.backward()
    for work, _ in stage.sending:
        work.wait()


def step(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    stage = Stage(w.layers, mesh)
    schedule(stage, list(zip(x.tokens.chunk(MICRO), x.targets.chunk(MICRO), strict=True)))
    return total(spmd.reinterpret(stage.loss, "pp", src=V, dst=P), ["pp"])


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
