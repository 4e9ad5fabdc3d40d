"""Which solvers are linear? In the right-hand side, never in the matrix.

Decompositions, inverses, norms and powers are in ``opaque.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schema import OpRule, Result
from .guards import Guard


def _solves(op: str, params: str, right_hand_side: str, *others: Result, guard: Guard | None = None) -> OpRule:
    """``others``: the results beside the solution. ``guard`` sees all parameters."""
    law = "applies an inverse that is equal on every rank to the right-hand side"
    static = tuple(params.split()) if guard is not None else ()
    return OpRule(op, params, right_hand_side, others, law=law, source=f"torch.{op}", static=static, guard=guard)


def _without_residuals(static: Mapping[str, Any]) -> str | None:
    """lstsq gives residuals, which are squares, for more equations than unknowns; else it leaves them empty."""
    matrix = static.get("A")
    if matrix is not None and matrix.shape[-2] <= matrix.shape[-1]:
        return None
    return "the residuals are squared, and come beside the solution"


RULES = (
    _solves("linalg.solve", "A B", "B"),
    _solves("linalg.solve_ex", "A B", "B", Result(of="A")),
    _solves("linalg.solve_triangular", "input B", "B"),
    _solves("linalg.tensorsolve", "A B dims", "B"),
    _solves("linalg.lu_solve", "LU pivots B", "B"),
    _solves("linalg.ldl_solve", "LD pivots B", "B"),
    # Solution, residuals, rank and singular values.
    _solves("linalg.lstsq", "A B", "B", Result("B"), Result(of="A"), Result(of="A"), guard=_without_residuals),
    _solves("lu_solve", "b LU_data LU_pivots", "b"),
    _solves("cholesky_solve", "input input2 upper", "input"),
    # Hands back a copy of the matrix beside the solution.
    _solves("triangular_solve", "b A", "b", Result("A", of="A")),
    OpRule(
        "ormqr",
        "input tau other left transpose",
        "other",
        law="applies an orthogonal matrix that is equal on every rank",
        source="torch.ormqr",
    ),
)
