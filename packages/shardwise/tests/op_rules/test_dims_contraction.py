"""Products in global mode: what the rules say of every sharding is what the numbers say, and they say all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shardwise.types.placement import P, R, S

from .agreement import assert_agreement, randn
from .global_ruleset import ask

Shapes = tuple[tuple[int, ...], ...]

CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "matmul": (torch.matmul, ((4, 5), (5, 2))),
    "matmul row": (torch.matmul, ((4,), (4, 5))),
    "matmul column": (torch.matmul, ((4, 5), (5,))),
    "matmul row of many": (torch.matmul, ((4,), (2, 4, 5))),
    "matmul vectors": (torch.matmul, ((5,), (5,))),
    "matmul batches": (torch.matmul, ((2, 4, 5), (2, 5, 2))),
    "matmul broadcast": (torch.matmul, ((2, 1, 4, 5), (4, 5, 2))),
    "matmul by name": (lambda a, b: torch.matmul(other=b, input=a), ((4, 5), (5, 2))),
    "rmatmul": (lambda a, b: a.__rmatmul__(b), ((5, 2), (4, 5))),
    "mm": (torch.mm, ((4, 5), (5, 2))),
    "bmm": (torch.bmm, ((2, 4, 5), (2, 5, 4))),
    "mv": (torch.mv, ((4, 5), (5,))),
    "dot": (torch.dot, ((5,), (5,))),
    "vdot": (torch.vdot, ((5,), (5,))),
    "inner": (torch.inner, ((4, 5), (2, 5))),
    "inner vectors": (torch.inner, ((5,), (5,))),
    "inner number": (torch.inner, ((4, 5), ())),
    "outer": (torch.outer, ((4,), (5,))),
    "vecdot": (torch.linalg.vecdot, ((4, 5), (4, 5))),
    "vecdot broadcast": (lambda a, b: torch.linalg.vecdot(a, b, dim=0), ((4, 5), (5,))),
    "vecdot first dim": (lambda a, b: torch.linalg.vecdot(a, b, dim=0), ((4, 5), (4, 5))),
    "vecdot stretched": (torch.linalg.vecdot, ((4, 5), (4, 1))),
    "cross": (torch.linalg.cross, ((4, 3), (4, 3))),
    "cross broadcast": (torch.linalg.cross, ((4, 3), (1, 3))),
    "cross first dim": (lambda a, b: torch.linalg.cross(a, b, dim=0), ((3, 4), (3, 4))),
    "cross along": (lambda a, b: torch.cross(a, b, dim=1), ((4, 3), (4, 3))),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=1), ((4, 5), (5, 2))),
    "tensordot two": (torch.tensordot, ((2, 4, 5), (4, 5, 2))),
    "tensordot none": (lambda a, b: torch.tensordot(a, b, dims=0), ((4,), (5,))),
    "tensordot pairs": (lambda a, b: torch.tensordot(a, b, dims=([1, 0], [0, 2])), ((4, 5, 2), (5, 2, 4))),
    "multi_dot": (lambda *t: torch.linalg.multi_dot(t), ((2, 4), (4, 5), (5, 2))),
    "multi_dot ends": (lambda *t: torch.linalg.multi_dot(t), ((4,), (4, 5), (5,))),
    "linear": (F.linear, ((4, 5), (2, 5))),
    "linear bias": (F.linear, ((4, 5), (2, 5), (2,))),
    "linear vector": (F.linear, ((5,), (2, 5))),
    "linear one feature": (F.linear, ((4, 5), (5,))),
    "linear many": (F.linear, ((2, 4, 5), (2, 5))),
    "linear in disorder": (lambda x, b, w: F.linear(x, bias=b, weight=w), ((4, 5), (2,), (2, 5))),
    "bilinear": (F.bilinear, ((4, 5), (4, 2), (4, 5, 2))),
    "bilinear bias": (F.bilinear, ((2, 5), (2, 2), (2, 5, 2), (2,))),
    "addmm": (torch.addmm, ((4, 2), (4, 5), (5, 2))),
    "addmm row": (torch.addmm, ((2,), (4, 5), (5, 2))),
    "addmm column": (torch.addmm, ((4, 1), (4, 5), (5, 2))),
    "addmm number": (torch.addmm, ((), (4, 5), (5, 2))),
    "addmm in place": (lambda a, b, c: a.clone().addmm_(b, c), ((4, 2), (4, 5), (5, 2))),
    "addmv": (torch.addmv, ((4,), (4, 5), (5,))),
    "addbmm": (torch.addbmm, ((4, 2), (2, 4, 5), (2, 5, 2))),
    "baddbmm": (torch.baddbmm, ((2, 4, 2), (2, 4, 5), (2, 5, 2))),
    "baddbmm row": (torch.baddbmm, ((2,), (2, 4, 5), (2, 5, 2))),
    "addr": (torch.addr, ((4, 5), (4,), (5,))),
    "addr column": (torch.addr, ((4, 1), (4,), (5,))),
    "trapezoid": (torch.trapezoid, ((4, 5),)),
    "trapezoid spaced": (lambda y, x: torch.trapezoid(y, x, dim=0), ((4, 5), (4,))),
    "trapezoid spaced each": (torch.trapezoid, ((4, 5), (4, 5))),
    "cumulative trapezoid": (lambda y: torch.cumulative_trapezoid(y, dx=0.5), ((4, 5),)),
    "kron": (torch.kron, ((4, 2), (5, 4))),
    "kron lower": (torch.kron, ((4,), (5, 2))),
    "kron higher": (torch.kron, ((4, 2), (5,))),
}  # fmt: skip

EINSUMS: dict[str, Shapes] = {
    "ij,jk->ik": ((4, 5), (5, 2)),
    "ij,jk": ((4, 5), (5, 2)),
    "bij,bjk->bik": ((2, 4, 5), (2, 5, 2)),
    "i,i->": ((5,), (5,)),
    "i,j->ij": ((4,), (5,)),
    "ij->ji": ((4, 5),),
    "ij->": ((4, 5),),
    "ij->i": ((4, 5),),
    "ii->i": ((4, 4),),
    "ii": ((4, 4),),
    "ij,ij->ij": ((4, 5), (1, 5)),
    "ij,jk,kl->il": ((4, 5), (5, 2), (2, 4)),
    "...ij,...jk->...ik": ((2, 4, 5), (5, 2)),
    "...i,i": ((2, 4, 5), (5,)),
    "i...,i...->...": ((4, 5), (4, 5)),
    "i...j->j...": ((2, 4, 5),),
    " b i , b j -> j b ": ((2, 4), (2, 5)),
    "Ab,bc": ((4, 5), (5, 2)),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_a_product_is_placed_as_the_numbers_say(name: str) -> None:
    fn, shapes = CASES[name]
    assert_agreement(fn, randn(*shapes))


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("equation", EINSUMS)
def test_an_equation_is_placed_as_the_numbers_say(equation: str) -> None:
    assert_agreement(lambda *t: torch.einsum(equation, *t), randn(*EINSUMS[equation]))


@pytest.mark.parametrize("name", ["matmul", "vdot", "vecdot", "kron"])
def test_complex_products_too(name: str) -> None:
    fn, shapes = CASES[name]
    assert_agreement(fn, randn(*shapes, dtype=torch.complex128))


ROWS = ((4, 8), (2, 8, 4)), (1, 4)
COLUMNS = ((2, 4, 8), (8, 8)), (4, 8)
SUMS = ((4, 8), (8, 4)), (4, 8)


@pytest.mark.parametrize(
    ("grouped", "operands", "expected"),
    [
        (ROWS, (S(1), S(1)), P),
        (ROWS, (R, S(2)), S(1)),
        (ROWS, (S(0), R), "SW405"),
        (ROWS, (R, S(0)), "SW402"),
        (COLUMNS, (S(1), R), S(0)),
        (COLUMNS, (S(2), S(0)), P),
        (COLUMNS, (R, S(1)), "SW405"),
        (SUMS, (S(0), R), S(1)),
        (SUMS, (R, S(1)), S(2)),
        (SUMS, (S(1), S(0)), "SW405"),
    ],
)
def test_grouped_products_need_their_groups_whole(grouped: Any, operands: Any, expected: Any) -> None:
    """Single precision is all that they have, which is too little for the numbers to prove a sum."""
    shapes, ends = grouped
    tensors = [*randn(*shapes, dtype=torch.float32), torch.tensor(ends, dtype=torch.int32)]
    answer = ask(lambda a, b, offs: F.grouped_mm(a, b, offs=offs), tensors, (*operands, R))
    assert answer[:5] == expected if isinstance(expected, str) else answer == (expected,)
