"""What does a collective move? For every output, the inputs it is made of: a route, one row per kind.

A call is laid out as two lists of tensors, its flat inputs and its outputs. A route says of output ``k`` on rank ``d``
which inputs of which ranks it is the copy, or the reduction, of. Ranks are numbered within the group of ``n`` ranks.
Source of the layouts: the documentation of ``torch.distributed``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shardwise.interop.torch_compat import no_modes
from shardwise.types.notation import abbreviate

Slot = tuple[int, int]
"""A rank, and which of its inputs."""

# (n, root, d, k) -> the slots that output k of rank d is made of; none: it is left as it is.
ROUTES: dict[str, Callable[[int, int, int, int], list[Slot]]] = {
    "barrier": lambda n, root, d, k: [],
    "broadcast": lambda n, root, d, k: [(root, k)],
    "all_reduce": lambda n, root, d, k: [(s, k) for s in range(n)],
    "reduce": lambda n, root, d, k: [(s, k) for s in range(n)] if d == root else [],
    "all_gather": lambda n, root, d, k: [(k % n, k // n)],
    "gather": lambda n, root, d, k: [(k, 0)],
    "scatter": lambda n, root, d, k: [(root, d)],
    "reduce_scatter": lambda n, root, d, k: [(s, k * n + d) for s in range(n)],
    "all_to_all": lambda n, root, d, k: [(k, d)],
}

REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": operator.add,
    "AVG": operator.add,  # divided at the end
    "PRODUCT": operator.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


@dataclass(frozen=True, eq=False)
class GroupCall:
    """A collective as one rank calls it.

    ``inputs``, ``outputs``  in the order that the route of ``kind`` numbers them; inputs have one dim.
    ``root``  a rank of the group; ``op`` a key of ``REDUCTIONS``, or empty.
    ``shown``  the tensors that a message shows; ``ends`` what it says after them.
    """

    kind: str
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[Tensor] = ()
    op: str = ""
    root: int = 0
    shown: Sequence[Tensor] = ()
    ends: str = ""

    def __str__(self) -> str:
        parts = [self.op.lower()] if self.op else []
        parts += [typed(x) for x in self.shown]
        parts += [f"root {self.root}"] if self.kind in ("broadcast", "reduce", "gather", "scatter") else []
        return f"{self.kind}({', '.join(parts)}){self.ends}"


class Misfit(Exception):
    """What an input of ``sender`` holds does not fit into the output of ``receiver`` that it should fill."""

    def __init__(self, receiver: int, sender: int, why: str) -> None:
        super().__init__(why)
        self.receiver, self.sender, self.why = receiver, sender, why


def exchange(calls: Sequence[GroupCall]) -> None:
    """Fill the outputs of every rank; ``calls`` are of one kind, in rank order.

    Sums are taken in rank order, in the dtype of the operands. No version counter moves and no mode sees a thing, as
    with the real backends. Errors: Misfit, before anything is written.
    """
    n, root = len(calls), calls[0].root
    route = ROUTES[calls[0].kind]
    made: dict[tuple[Slot, ...], Tensor] = {}
    writes: list[tuple[Tensor, Tensor]] = []
    with no_modes(), torch.inference_mode():
        for receiver, call in enumerate(calls):
            for k, output in enumerate(call.outputs):
                slots = tuple(route(n, root, receiver, k))
                if not slots:
                    continue
                sources = [_source(calls, receiver, sender, index) for sender, index in slots]
                for source, (sender, _) in zip(sources, slots, strict=True):
                    _check_fit(output, source, receiver, sender)
                if slots not in made:
                    made[slots] = _combined(sources, call.op)
                writes.append((output, made[slots]))
        for output, value in writes:
            output.copy_(value.view(output.shape))


def deliver(output: Tensor, given: Tensor) -> None:
    """A message. Errors: Misfit, with 0 for the receiver and 1 for the sender."""
    _check_fit(output, given, 0, 1)
    with no_modes(), torch.inference_mode():
        output.copy_(given.view(output.shape))


def _source(calls: Sequence[GroupCall], receiver: int, sender: int, index: int) -> Tensor:
    inputs = calls[sender].inputs
    if index >= len(inputs):
        raise Misfit(receiver, sender, f"one expects at least {index + 1} tensors and the other gives {len(inputs)}")
    return inputs[index]


def _check_fit(output: Tensor, given: Tensor, receiver: int, sender: int) -> None:
    if given.dtype != output.dtype:
        raise Misfit(receiver, sender, f"{_dtype(output)} on one and {_dtype(given)} on the other")
    if given.numel() != output.numel():
        raise Misfit(receiver, sender, f"{output.numel()} elements on one and {given.numel()} on the other")


def _combined(sources: list[Tensor], op: str) -> Tensor:
    if not op:
        (source,) = sources
        return source.clone()
    total = functools.reduce(REDUCTIONS[op], sources[1:], sources[0].clone())
    if op == "AVG":
        total = total / len(sources) if total.is_floating_point() else total // len(sources)
    return total


def memory(x: Tensor) -> Tensor:
    """The memory of ``x`` as one dim, in the order it lies there: what is sent of a tensor that is changed in place.

    Errors: ValueError if ``x`` has gaps or overlaps. gloo corrupts such tensors and NCCL refuses them.
    """
    x = _plain(x)
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1):
        if stride != expected and x.numel():
            raise ValueError(f"a collective takes dense tensors, got shape {tuple(x.shape)} with strides {x.stride()}")
        expected *= size
    return x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))


def contiguous(x: Tensor) -> Tensor:
    """The elements of ``x`` as one dim. Errors: ValueError if they do not lie in order, where backends ask for that."""
    x = _plain(x)
    if not x.is_contiguous():
        raise ValueError(f"this takes contiguous tensors, got shape {tuple(x.shape)} with strides {x.stride()}")
    return x.view(-1)


def elements(x: Tensor) -> Tensor:
    """The elements of ``x`` as one dim, a copy if they do not lie in order: what backends send of a mere input."""
    return _plain(x).reshape(-1)


def room(x: Tensor) -> Tensor:
    """Where a mere output is written, in the order of its elements."""
    return _plain(x)


def _plain(x: Tensor) -> Tensor:
    """``x`` without a gradient, and with a version counter of its own."""
    if x.layout is not torch.strided:
        raise ValueError(f"ranks in one process exchange strided tensors, got {x.layout}")
    return x.data


def typed(x: Tensor) -> str:
    """``f32[4, 8]``."""
    return f"{_dtype(x)}[{', '.join(map(str, x.shape))}]"


def _dtype(x: Tensor) -> str:
    return abbreviate(str(x.dtype).removeprefix("torch."))
