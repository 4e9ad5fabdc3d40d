"""Zero-bubble pipeline parallelism (Qi et al., 2023, ZB-H1): gradients of weights are taken while a rank would wait.

Mesh:    pp outermost, as with 1F1B, and the same messages.
Choose:  in place of 1F1B wherever a layer's backward can be taken apart: the bubble is a third, and no more
         micro-batches are kept than 1F1B keeps on its first rank.
Breaks:  a weight's gradient of an activation that is freed, or that was changed in place, since it is taken later; the
         optimizer's step before the last of them; a loss scale or a clipping that was found from gradients which are
         not all there.
Memory:  LAYERS / pp * D * D
Gradients: LAYERS / pp * D * D + (LAYERS / pp + 1) * B / MICRO * D
Activations: min(pp, MICRO) * (3 * LAYERS / pp + 1) * B / MICRO * D
Traffic: pp = recv(B * D)
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, V
from shardwise.zoo.messages import ACTIVATION, GRADIENT, Messages
from shardwise.zoo.program import Tensors, ZooProgram, main, type_of, typed
from shardwise.zoo.programs.pipeline import error, layers
from shardwise.zoo.schedule import Task, TaskKind, alternating

B, D, LAYERS, MICRO = 8, 6, 4, 4


def single(w: Tensors, x: Tensors) -> Tensor:
    return error(layers(w.layers, x.tokens), x.targets)


def order(rank: int, ranks: int) -> list[Task]:
    """1F1B of forward and of the inputs' gradients; those of the weights come ``rank`` micro-batches later."""
    forward = [Task(TaskKind.FORWARD, micro, rank) for micro in range(MICRO)]
    backward = [Task(TaskKind.BACKWARD_INPUT, micro, rank) for micro in range(MICRO)]
    tasks = []
    for task in alternating(forward, backward, ranks - rank - 1):
        tasks.append(task)
        if task.kind is TaskKind.BACKWARD_INPUT and task.micro >= rank:
            tasks.append(Task(TaskKind.BACKWARD_WEIGHT, task.micro - rank, rank))
    return tasks + [Task(TaskKind.BACKWARD_WEIGHT, micro, rank) for micro in range(max(MICRO - rank, 0), MICRO)]


class SplitStage:
    """This rank's layers, and what each half of backward needs of the micro-batches that wait for it."""

    def __init__(self, weights: Tensor, mesh: DeviceMesh) -> None:
        self.messages = Messages(mesh, "pp", type_of("f64[2, 6] {pp: V}"))
        self.rank, self.ranks, self.weights = self.messages.rank, self.messages.ranks, weights.detach()
        self.inputs: dict[int, list[Tensor]] = {}  # of every layer
        self.outputs: dict[int, list[Tensor]] = {}  # of every layer's matmul, and of the stage
        self.gradients: dict[int, Sequence[Tensor]] = {}  # of what the matmuls gave
        self.gradient = torch.zeros_like(self.weights)
        self.loss = spmd.assert_type(torch.zeros((), dtype=torch.float64), {"pp": V})

    def forward(self, micro: int, tokens: Tensor, targets: Tensor) -> None:
        y = tokens.clone() if self.rank == 0 else self.messages.receive(tokens, self.rank - 1, ACTIVATION)
        y.requires_grad_()
        self.inputs[micro], self.outputs[micro] = [], []
        for weight in self.weights.unbind(0):
            self.inputs[micro].append(y)
            self.outputs[micro].append(F.linear(y, weight))
            y = y + torch.tanh(self.outputs[micro][-1])
        if self.rank == self.ranks - 1:
            y = error(y, targets)
            self.loss += y.detach()
        else:
            self.messages.send(y.detach(), self.rank + 1, ACTIVATION)
        self.outputs[micro].append(y)

    def backward_input(self, micro: int) -> None:
        """Back through all layers, with no thought of their weights: the stage before waits for this."""
        *products, y = self.outputs.pop(micro)
        if self.rank == self.ranks - 1:
            y, gradient = spmd.reinterpret(y, "pp", src=V, dst=P), None
        else:
            gradient = self.messages.receive(y, self.rank + 1, GRADIENT)
        of_input, *of_products = torch.autograd.grad(y, (self.inputs[micro][0], *products), gradient)
        self.gradients[micro] = of_products
        if self.rank > 0:
            self.messages.send(of_input, self.rank - 1, GRADIENT)

    def backward_weight(self, micro: int) -> None:
        """A matmul for every layer, of its input and what came back to its output."""
        pairs = zip(self.gradients.pop(micro), self.inputs.pop(micro), strict=True)
        self.gradient += torch.stack([gradient.mT @ x.detach() for gradient, x in pairs])


@spmd.local()  # each stage is a program of its own: no dim is cut over all of them
def run(stage: SplitStage, tokens: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for task in order(stage.rank, stage.ranks):
        if task.kind is TaskKind.FORWARD:
            stage.forward(task.micro, tokens[task.micro], targets[task.micro])
        elif task.kind is TaskKind.BACKWARD_INPUT:
            stage.backward_input(task.micro)
        else:
            stage.backward_weight(task.micro)
    stage.messages.finish()


def step(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    stage = SplitStage(w.layers, mesh)
    run(stage, x.tokens.chunk(MICRO), x.targets.chunk(MICRO))
    w.layers.grad = typed(stage.gradient, type_of("f64[4@pp, 6, 6]"))
    return spmd.reinterpret(stage.loss, "pp", src=V, dst=P)


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
