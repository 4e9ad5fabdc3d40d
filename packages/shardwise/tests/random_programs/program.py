"""Random programs as values: a mesh, typed inputs, and steps: operators of torch and transitions of shardwise.

Sizes of dims are multiples of the number of ranks, so that any dim can be cut over any axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import shardwise as spmd
from shardwise.oracle.reassemble import Grid
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, Shard, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

AXES = ("dp", "tp")
LARGEST = 4096
"""Elements of a value."""
Shape = tuple[int, ...]
Coordinates = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """An operator of torch: how many tensors it takes, and the call; every call is given a dim and may ignore it.

    ``margin``  how far its operands are from where its derivative jumps; None if it never does.
    """

    arity: int
    call: Callable[..., Tensor]
    margin: Callable[..., Tensor] | None = None


def _gap_of_two_largest(x: Tensor, *, dim: int) -> Tensor:
    if not x.ndim or x.shape[dim] == 1:
        return torch.ones(())
    first, second = x.topk(2, dim).values.unbind(dim)
    return first - second


OPERATORS: Mapping[str, Operator] = {
    "neg": Operator(1, lambda x, dim: -x),
    "triple": Operator(1, lambda x, dim: x * 3),
    "successor": Operator(1, lambda x, dim: x + 1),
    "clone": Operator(1, lambda x, dim: x.clone()),
    "square": Operator(1, lambda x, dim: x.square()),
    "sigmoid": Operator(1, lambda x, dim: torch.sigmoid(x)),
    "tanh": Operator(1, lambda x, dim: torch.tanh(x)),
    "relu": Operator(1, lambda x, dim: torch.relu(x), lambda x, dim: x.abs()),
    "sum": Operator(1, lambda x, dim: x.sum(dim)),
    "sum keepdim": Operator(1, lambda x, dim: x.sum(dim, keepdim=True)),
    "sum of all": Operator(1, lambda x, dim: x.sum()),
    "mean": Operator(1, lambda x, dim: x.mean(dim)),
    "amax": Operator(1, lambda x, dim: x.amax(dim), _gap_of_two_largest),
    "logsumexp": Operator(1, lambda x, dim: x.logsumexp(dim)),
    "softmax": Operator(1, lambda x, dim: x.softmax(dim)),
    "log_softmax": Operator(1, lambda x, dim: F.log_softmax(x, dim)),
    "cumsum": Operator(1, lambda x, dim: x.cumsum(dim)),
    "norm": Operator(1, lambda x, dim: torch.linalg.vector_norm(x, dim=dim), lambda x, dim: x.abs()),
    "layer_norm": Operator(1, lambda x, dim: F.layer_norm(x, x.shape[-1:])),
    "flip": Operator(1, lambda x, dim: x.flip(dim)),
    "tril": Operator(1, lambda x, dim: x.tril()),
    "transpose": Operator(1, lambda x, dim: x.transpose(dim, -1)),
    "flatten": Operator(1, lambda x, dim: x.flatten(dim)),
    "unsqueeze": Operator(1, lambda x, dim: x.unsqueeze(dim)),
    "squeeze": Operator(1, lambda x, dim: x.squeeze(dim)),
    "add": Operator(2, lambda x, y, dim: x + y),
    "sub": Operator(2, lambda x, y, dim: x - y),
    "mul": Operator(2, lambda x, y, dim: x * y),
    "div": Operator(2, lambda x, y, dim: x / (y.square() + 1)),
    "maximum": Operator(2, lambda x, y, dim: torch.maximum(x, y), lambda x, y, dim: (x - y).abs()),
    "where": Operator(2, lambda x, y, dim: torch.where(y > 0, x, 0.0), lambda x, y, dim: y.abs()),
    "matmul": Operator(2, lambda x, y, dim: x @ y),
    "linear": Operator(2, lambda x, y, dim: F.linear(x, y)),
    "einsum": Operator(2, lambda x, y, dim: torch.einsum("ij,kj->ki", x, y)),
    "outer": Operator(2, lambda x, y, dim: torch.outer(x, y)),
    "cat": Operator(2, lambda x, y, dim: torch.cat([x, y], dim)),
    "stack": Operator(2, lambda x, y, dim: torch.stack([x, y], dim)),
    "mse_loss": Operator(2, lambda x, y, dim: F.mse_loss(*torch.broadcast_tensors(x, y))),
    "addmm": Operator(3, lambda x, y, z, dim: torch.addmm(x, y, z)),
    "lerp": Operator(3, lambda x, y, z, dim: torch.lerp(x, y, torch.sigmoid(z))),
}
TRANSITIONS: Mapping[str, Callable[..., Tensor]] = {
    "all_reduce": spmd.all_reduce,
    "all_gather": spmd.all_gather,
    "reduce_scatter": spmd.reduce_scatter,
    "all_to_all": spmd.all_to_all,
    "convert": spmd.convert,
    "reinterpret": spmd.reinterpret,
    "redistribute": spmd.redistribute,
}


@dataclass(frozen=True)
class Input:
    """An input by the shape of its value and its placement on every axis. V is a value of its own on every rank."""

    shape: Shape
    placements: tuple[PerMeshAxisSpmdType, ...]

    def type(self, grid: Grid) -> TensorType:
        axes = tuple(zip(grid.axes.values(), self.placements, strict=True))
        cuts = [tuple(axis for axis, placement in axes if placement == Shard(dim)) for dim in range(len(self.shape))]
        spec = PartitionSpec(*[cut or None for cut in cuts]) if any(cuts) else None
        return TensorType.of({axis: V if isinstance(place, Shard) else place for axis, place in axes}, spec)


@dataclass(frozen=True)
class Operation:
    """An operator on values by number: the inputs come first, then the results of the steps."""

    name: str
    operands: tuple[int, ...]
    dim: int

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'v{at}' for at in self.operands)}, dim={self.dim})"


@dataclass(frozen=True)
class Transition:
    """A collective or coercion of one value along the axis with this number; its source is the type at hand."""

    name: str
    operand: int
    axis: int
    dst: PerMeshAxisSpmdType

    @property
    def operands(self) -> tuple[int, ...]:
        return (self.operand,)

    def __str__(self) -> str:
        return f"{self.name}(v{self.operand}, {AXES[self.axis]!r}, dst={self.dst})"


Step = Operation | Transition


@dataclass(frozen=True)
class Draw:
    """A step that was drawn: which of the values at hand it takes, counted from the newest, and two numbers more.

    Refused steps leave no value, so every draw finds operands, and a program without one of its draws is a program.
    """

    name: str
    operands: tuple[int, ...]
    numbers: tuple[int, int]


@dataclass(frozen=True)
class RandomProgram:
    """A mesh, inputs, and draws that become steps as values come to hand."""

    local: bool
    mesh: tuple[int, ...]
    inputs: tuple[Input, ...]
    draws: tuple[Draw, ...]

    @property
    def grid(self) -> Grid:
        return Grid.of(dict(zip(AXES, self.mesh, strict=False)))

    @property
    def ranks(self) -> int:
        return math.prod(self.mesh)

    def coordinates(self, axes: Sequence[int]) -> list[Coordinates]:
        """All places along these axes."""
        return list(itertools.product(*[range(self.mesh[axis]) for axis in axes]))

    def step(self, draw: Draw, shapes: Sequence[Shape]) -> tuple[Step, Shape] | None:
        """The step that a draw stands for where values of these shapes are at hand, and the shape of its result.

        Shapes are those on one device. None if they do not fit.
        """
        operands = tuple(len(shapes) - 1 - number % len(shapes) for number in draw.operands)
        shape, (one, other) = shapes[operands[0]], draw.numbers
        if draw.name in TRANSITIONS:
            destinations = placements(shape, self.local)
            axis = one % len(self.mesh)
            return Transition(draw.name, operands[0], axis, destinations[other % len(destinations)]), shape
        operator = OPERATORS[draw.name]
        step = Operation(draw.name, operands[: operator.arity], one % max(1, len(shape)))
        try:
            result = operator.call(*[torch.empty(shapes[at], device="meta") for at in step.operands], dim=step.dim)
        except (RuntimeError, IndexError):
            return None
        return (step, tuple(result.shape)) if result.ndim <= 4 and result.numel() <= LARGEST else None

    def shown(self, steps: Sequence[Step]) -> str:
        """The program as text, with the steps that were taken."""
        mesh = ", ".join(f"{name}={size}" for name, size in zip(AXES, self.mesh, strict=False))
        lines = [f"{'local' if self.local else 'global'} types, mesh {mesh}"]
        for at, one in enumerate(self.inputs):
            lines.append(f"v{at} = input{list(one.shape)} {', '.join(map(str, one.placements))}")
        lines += [f"v{at} = {step}" for at, step in enumerate(steps, len(self.inputs))]
        return "\n".join(lines)


def placements(shape: Shape, local: bool) -> list[PerMeshAxisSpmdType]:
    """What a value of this shape can be along an axis, said of an input or wanted of a transition."""
    return [R, P, I, *([V] if local else [Shard(dim) for dim in range(len(shape))])]
