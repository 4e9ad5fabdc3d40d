"""A program of the zoo: the weights and inputs with their types, the loss on a mesh, and the same loss on one device.

Types are written as ``f64[16@tp, 12] {dp: R, tp: I}``: a dim of 16 elements cut over tp, equal over dp. They say how
the whole is cut into pieces, and what every gradient owes: a weight that is R over an axis has a gradient that is P.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardwise.collectives.annotate import assert_type
from shardwise.collectives.communicate import all_reduce
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.current import set_current_mesh
from shardwise.types.notation import TypedShape, parse
from shardwise.types.placement import P, R
from shardwise.types.spec import entry_axes

from .kept_memory import KeptMemory
from .schedule import Order

STEPS = 2
LEARNING_RATE = 0.1
MOMENTUM = 0.9


class Tensors:
    """Tensors by name: ``w.up`` is the weight ``up``."""

    def __init__(self, **tensors: Tensor) -> None:
        vars(self).update(tensors)

    def __getattr__(self, name: str) -> Tensor:
        raise AttributeError(f"there is no tensor {name}; there are {', '.join(vars(self))}")


class Layer(Tensors):
    """The weights of one layer, each cut out of its stack where it is used: under the mesh that is current there."""

    def __init__(self, stacks: Tensors, at: int) -> None:
        vars(self).update(_stacks=stacks, _at=at)

    def __getattr__(self, name: str) -> Tensor:
        stack: Tensor = getattr(vars(self)["_stacks"], name)
        return stack[vars(self)["_at"]]


Place = Mapping[str, tuple[int, int]]
"""Where a rank stands along every axis, and how many ranks the axis has."""
Sizes = Mapping[str, int]
"""How many ranks every axis of a mesh has, the outermost first."""
Loss = Callable[[Tensors, Tensors], Tensor]
Step = Callable[Concatenate[Tensors, Tensors, DeviceMesh, ...], Tensor]
"""Of weights, inputs, the mesh, and the mesh of the experts where there is one."""


class Optimizer(Protocol):
    """What takes a step with gradients that are there. ``state`` has the tensors that it keeps from step to step."""

    state: Any

    def step(self) -> object: ...

    def zero_grad(self) -> object: ...


@dataclass(frozen=True)
class ZooProgram:
    """One way to train, on small sizes.

    ``mesh``      the axes, outermost first, with sizes that suit a laptop.
    ``shared``    the axes that share the work of a batch: over them the loss is a pending sum.
    ``weights``   the type of every weight by name; ``inputs`` that of every input. Shapes are those of the whole.
    ``single``    the loss on one device, of whole weights and inputs.
    ``parallel``  the loss on a rank's pieces: P over the axes of ``shared``.
    ``step``      for programs whose point is when to go forward and when backward: both, and the loss.
    ``optimizer`` for programs whose point it is: made of the weights; its ``step`` replaces that of SGD and sums
                  gradients itself.
    ``largest_norm``  what the gradients' norm is clipped to on one device; on the mesh ``optimizer`` does it.
    ``order``     for pipelines: what a rank does with which micro-batch, in order.
    ``choices``   how many values an input of integers has, by name: 16 are 0 to 15.
    ``constants`` inputs that are the same in every step.
    ``folded``    the mesh of the experts, which are the same ranks in the same order: its sizes, of those of ``mesh``.
    ``state``     the type of the optimizer's state of every weight, where that is not the weight's.
    ``within``    what else a mesh must divide, by name: types of what is made on the way.
    """

    mesh: Sizes
    shared: Sequence[str]
    weights: Mapping[str, str]
    inputs: Mapping[str, str]
    single: Loss
    parallel: Step | None = None
    step: Step | None = None
    optimizer: Callable[[Tensors], Optimizer] | None = None
    largest_norm: float | None = None
    order: Order | None = None
    choices: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)
    folded: Callable[[Sizes], Sizes] | None = None
    state: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, str] = field(default_factory=dict)

    def meshes(self, sizes: Sizes) -> list[Sizes]:
        """The ways in which the program looks at a mesh of these sizes: as it is, and as the experts see it."""
        return [sizes] if self.folded is None else [sizes, self.folded(sizes)]

    def misfit(self, mesh: Sizes) -> str | None:
        """Why it cannot run on a mesh of these sizes: a dim that they do not divide."""
        sizes = {axis: size for seen in self.meshes(mesh) for axis, size in seen.items()}
        state = ((f"the state of {name}", text) for name, text in self.state.items())
        for name, text in (*self.weights.items(), *self.inputs.items(), *state, *self.within.items()):
            type = type_of(text)
            for length, entry in zip(type.shape, type.type.spec or (), strict=False):
                ranks = math.prod(sizes[str(axis)] for axis in entry_axes(entry))
                if length % ranks:
                    return f"{name} is {text}, and {length} is no multiple of {ranks} ranks"
        return None


@dataclass
class Trained:
    """What a training run has computed: the loss of every step; gradients, momenta and weights as whole or as pieces.

    ``gradients``    of every step, as the optimizer takes them; none where it sums them itself.
    ``momenta``      of every step, by weight: after the first step they are the gradients that the optimizer has taken.
    ``state_bytes``  of what the optimizer keeps.
    """

    losses: list[Tensor] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    momenta: list[dict[str, Tensor]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    state_bytes: int = 0


def train(program: ZooProgram, mesh: DeviceMesh, steps: int = STEPS, kept: KeptMemory | None = None) -> Trained:
    """Train on this rank's pieces, with typed tensors; what is returned are pieces too. ``kept`` measures."""
    found = Trained()
    meshes = [mesh, *(device_mesh(sizes) for sizes in program.meshes(_sizes_of(mesh))[1:])]
    with set_current_mesh(mesh):
        w = Tensors(**{name: weight(name, text, *meshes) for name, text in program.weights.items()})
        optimizer = (program.optimizer or _sgd)(w)
        for step in range(steps):
            x = Tensors(**dict(_inputs(program, step, mesh)))
            with contextlib.nullcontext() if kept is None else kept.step():
                loss = _step(program, w, x, meshes).detach()
            found.losses.append(loss)
            if program.optimizer is None:
                found.gradients.append({name: _gradient(tensor) for name, tensor in vars(w).items()})
            optimizer.step()
            found.momenta.append(_momenta(w, optimizer))
            optimizer.zero_grad()
    found.weights = {name: tensor.detach().clone() for name, tensor in vars(w).items()}
    found.state_bytes = sum(kept.nbytes for kept in _kept(optimizer))
    return found


def train_single(program: ZooProgram, steps: int = STEPS) -> Trained:
    """Train the program of one device on the whole weights and inputs."""
    found = Trained()
    types = {name: type_of(text) for name, text in {**program.weights, **program.inputs}.items()}
    w = Tensors(**{name: whole(name, *types[name].shape).requires_grad_() for name in program.weights})
    optimizer = _sgd(w)
    for step in range(steps):
        x = Tensors(**{name: _data(program, name, step, types[name]) for name in program.inputs})
        loss = program.single(w, x)
        loss.backward()  # type: ignore[no-untyped-call]
        found.losses.append(loss.detach())
        found.gradients.append({name: _gradient(tensor) for name, tensor in vars(w).items()})
        if program.largest_norm is not None:
            torch.nn.utils.clip_grad_norm_(vars(w).values(), program.largest_norm)
        optimizer.step()
        found.momenta.append(_momenta(w, optimizer))
        optimizer.zero_grad()
    found.weights = {name: tensor.detach() for name, tensor in vars(w).items()}
    return found


def sum_gradient(weight: Tensor, axis: str, mesh: DeviceMesh) -> None:
    """R in forward is P in backward: the gradient owes a sum over the axis."""
    dist.all_reduce(weight.grad, group=mesh.get_group(axis))


def total(loss: Tensor, axes: Sequence[str]) -> Tensor:
    """The loss of all ranks, for printing: its pending sums are taken."""
    loss = loss.detach()
    for axis in axes:
        loss = all_reduce(loss, axis, src=P, dst=R)
    return loss


def whole(name: str, *shape: int, seed: int = 0) -> Tensor:
    """Gaussian numbers, the same on every rank and in every process, by the name of what they are for."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)) + 1000 * seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(max(1, shape[-1]))


def layers_of(w: Tensors) -> list[Layer]:
    """The layers of weights whose first dim counts them."""
    first, *_ = vars(w).values()
    return [Layer(w, at) for at in range(len(first))]


def weight(name: str, text: str, *meshes: DeviceMesh) -> Tensor:
    """This rank's piece of the weight ``name``, with its type, which is of one of the meshes."""
    type = type_of(text)
    mesh = _mesh_of(type, meshes)
    with set_current_mesh(mesh):
        return typed(piece(whole(name, *type.shape), type, place_of(mesh)), type).requires_grad_()


def device_mesh(sizes: Sizes) -> DeviceMesh:
    """The mesh of these sizes of all ranks."""
    return init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def place_of(mesh: DeviceMesh) -> Place:
    """This rank's place."""
    return {name: (mesh.get_local_rank(name), size) for name, size in _sizes_of(mesh).items()}


def piece(full: Tensor, type: TypedShape, place: Place) -> Tensor:
    """What the rank at ``place`` holds of ``full``: along a dim cut over several axes, the first one cuts first."""
    for dim, entry in enumerate(type.type.spec or ()):
        for axis in entry_axes(entry):
            at, size = place[str(axis)]
            full = full.chunk(size, dim)[at]
    return full.clone()


def typed(local: Tensor, type: TypedShape) -> Tensor:
    """``local`` with the type that is written."""
    return assert_type(local, type.type.local, *() if type.type.spec is None else (type.type.spec,))


def main(program: ZooProgram) -> None:
    """Run the program as a script: every axis of its mesh is an option. Without torchrun there is one rank."""
    parser = argparse.ArgumentParser()
    for axis in program.mesh:
        parser.add_argument(f"--{axis}", type=int, default=1, help=f"ranks along {axis}")
    sizes = vars(parser.parse_args())
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    elif not dist.is_initialized():
        dist.init_process_group("gloo", store=_store(), rank=0, world_size=1)
    for step, loss in enumerate(train(program, device_mesh(sizes)).losses):
        sys.stdout.write(f"step {step}  loss {loss.item():.6f}\n")
    dist.destroy_process_group()


def _sgd(w: Tensors) -> Optimizer:
    return torch.optim.SGD(vars(w).values(), lr=LEARNING_RATE, momentum=MOMENTUM)


def _kept(optimizer: Optimizer) -> list[Tensor]:
    return [kept for kept in tree_leaves(optimizer.state) if isinstance(kept, Tensor)]


def _momenta(w: Tensors, optimizer: Optimizer) -> dict[str, Tensor]:
    """One for each weight, in their order."""
    return {name: kept.detach().clone() for name, kept in zip(vars(w), _kept(optimizer), strict=True)}


def _sizes_of(mesh: DeviceMesh) -> Sizes:
    return dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True))


def _store() -> Any:
    stores: Any = dist
    return stores.HashStore()


def _mesh_of(type: TypedShape, meshes: Sequence[DeviceMesh]) -> DeviceMesh:
    """The first that has all axes of the type."""
    axes = {str(axis) for axis in type.type.local}
    return next(mesh for mesh in meshes if axes <= set(mesh.mesh_dim_names or ()))


def _step(program: ZooProgram, w: Tensors, x: Tensors, meshes: Sequence[DeviceMesh]) -> Tensor:
    if program.step is not None:
        loss = program.step(w, x, *meshes)
    else:
        assert program.parallel is not None, "a program has a loss or a step"
        loss = program.parallel(w, x, *meshes)
        loss.backward()  # type: ignore[no-untyped-call]
    for name, text in () if program.optimizer is not None else program.weights.items():
        type = type_of(text)
        for axis, placement in type.type.local.items():
            if placement is R:
                sum_gradient(getattr(w, name), str(axis), _mesh_of(type, meshes))
    return total(loss, program.shared)


def _inputs(program: ZooProgram, step: int, mesh: DeviceMesh) -> Iterator[tuple[str, Tensor]]:
    for name, text in program.inputs.items():
        type = type_of(text)
        yield name, typed(piece(_data(program, name, step, type), type, place_of(mesh)), type)


def _data(program: ZooProgram, name: str, step: int, type: TypedShape) -> Tensor:
    if name in program.constants:
        return program.constants[name]()
    full = whole(name, *type.shape, seed=step + 1)
    many = program.choices.get(name)
    return full if many is None else (full.abs() * 1000).long() % many


def _gradient(tensor: torch.Tensor) -> Tensor:
    gradient = tensor.grad
    return torch.zeros_like(tensor) if gradient is None else gradient.detach().clone()


class _AxisName(str):
    """The name of an axis where the axis is meant: types can be sorted by it."""

    @property
    def sort_key(self) -> str:
        return self


def type_of(text: str) -> TypedShape:
    """The type that is written; axes are their names, so that it can be read without a mesh."""
    return parse(text, {word: _AxisName(word) for word in re.findall(r"[a-z]\w*", text)})
