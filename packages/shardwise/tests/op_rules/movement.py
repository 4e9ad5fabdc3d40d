"""How is a mover of elements tried out? By a call, and the shardings that the rules must admit, no more and no less.

Shardings are written with one sign per operand and one for the results: ``"01>1"`` says that the first operand sharded
on dim 0 and the second on dim 1 give results sharded on dim 1; ``.`` is an operand that is whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import shardwise as spmd
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import R, Shard

from .global_ruleset import ask, differences

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Move:
    """One call. ``even``: a claim needs shards of one size. ``missing``: why some truth is refused."""

    op: str
    call: Callable[..., Any]
    operands: Tensors
    kept: str
    even: bool = False
    missing: str = ""

    def __str__(self) -> str:
        return f"{self.op}[{self.kept}]"


def move(op: str, call: Callable[..., Any], *operands: torch.Tensor, kept: str, **how: Any) -> Move:
    return Move(op, call, operands, kept, **how)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def complexes(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex128)


def admitted(case: Move) -> str:
    """The shardings over two ranks that the rules admit, in the notation of this module."""
    found = []
    for cut in itertools.product(*[[R, *_shards(tensor)] for tensor in case.operands]):
        if not any(isinstance(place, Shard) for place in cut):
            continue
        local = tuple(_half(t, place) for t, place in zip(case.operands, cut, strict=True))
        answer = ask(case.call, local, cut)
        if not isinstance(answer, str):
            found.append("".join(map(_sign, cut)) + ">" + "".join(sorted({_sign(place) for place in answer})))
    return " ".join(found)


def _shards(tensor: torch.Tensor) -> list[Shard]:
    return [Shard(dim) for dim, extent in enumerate(tensor.shape) if extent > 1]


def _half(tensor: torch.Tensor, place: Any) -> torch.Tensor:
    return tensor.tensor_split(2, place.dim)[0] if isinstance(place, Shard) else tensor


def _sign(place: Any) -> str:
    return str(place.dim) if isinstance(place, Shard) else "."


def check(case: Move) -> None:
    """The rules admit what the case says, the numbers refute none of it, and nothing else is true unless meant."""
    assert admitted(case) == case.kept
    report = differences(case.call, *case.operands, sizes=(2,) if case.even else (2, 3))
    assert [str(each) for each in report.wrong] == []
    assert report.covered
    assert bool(report.missing) == bool(case.missing), [str(each) for each in report.missing]


def refusal(call: Callable[..., Any], tensor: torch.Tensor, dim: int) -> str:
    """What is said about a call on a tensor whose local part is ``tensor``, sharded on ``dim``; empty if it is fine."""
    with spmd.set_current_mesh({"tp": MeshAxis.of(2, 1)}), spmd.typecheck(local=False):
        spmd.assert_type(tensor, {"tp": spmd.S(dim)})
        try:
            call(tensor)
        except spmd.SpmdTypeError as error:
            return str(error.finding)
    return ""
