"""A call with several results gives each its own type, also from the cache and into a destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise import I, P, R, V
from shardwise.checker import typecheck

from .helpers import place, refused

MATRIX = torch.eye(3, dtype=torch.float64) * 2


def made(placement: Any, *shape: int) -> torch.Tensor:
    return spmd.assert_type(torch.ones(shape, dtype=torch.float64), {"tp": placement})


CASES: list[tuple[str, Callable[..., Any], list[Any], str]] = [
    ("a status follows from the matrix", lambda b: torch.linalg.solve_ex(matrix(), b), [P], "P R"),
    ("of a varying right-hand side too", lambda b: torch.linalg.solve_ex(matrix(), b), [V], "V R"),
    ("residuals are empty", lambda b: torch.linalg.lstsq(matrix(), b), [P], "P P R R"),
    ("the matrix comes back", lambda b: torch.triangular_solve(b, matrix()), [P], "P R"),
    ("a grid of a pending sum and a whole", torch.meshgrid, [P, R], "P R"),
    ("a grid of replicate and invariant", torch.meshgrid, [R, I], "R I"),
    ("a grid whose size may vary", torch.meshgrid, [R, V], "V V"),
    ("nothing meets", torch.atleast_2d, [P, V, I], "P V I"),
    ("broadcast with a pending sum", torch.broadcast_tensors, [R, P], "R P"),
]


def matrix() -> torch.Tensor:
    return spmd.assert_type(MATRIX.clone(), {"tp": R})


@pytest.mark.filterwarnings("ignore:torch")
@pytest.mark.parametrize(("call", "operands", "results"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_each_result_has_its_own_type(
    tp_mesh: Any, call: Callable[..., Any], operands: list[Any], results: str
) -> None:
    with typecheck():
        for _ in range(3):  # the second time from the cache
            given = [made(one, 3, 2) if len(operands) == 1 else made(one, 3) for one in operands]
            assert " ".join(map(place, call(*given))) == results


def test_a_destination_for_each_result_gets_its_own_type(tp_mesh: Any) -> None:
    solution, status = torch.empty(3, 2, dtype=torch.float64), torch.empty((), dtype=torch.int32)
    with typecheck():
        torch.linalg.solve_ex(matrix(), made(P, 3, 2), out=(solution, status))
        assert (place(solution), place(status)) == ("P", "R")


def test_a_call_is_refused_as_a_whole_where_one_result_is(tp_mesh: Any) -> None:
    tall = spmd.assert_type(torch.randn(5, 3, dtype=torch.float64), {"tp": R})
    b = made(P, 5, 2)
    with typecheck(), refused("SW112", "residuals"):
        torch.linalg.lstsq(tall, b, driver="gelsd")
