"""Which solvers are linear? In the right-hand side, never in the matrix.

Decompositions, inverses, norms and powers are in ``opaque.py``.
"""

from __future__ import annotations

from .row import Row


def _solves(op: str, params: str, right_hand_side: str) -> Row:
    law = "applies an inverse that is equal on every rank to the right-hand side"
    return Row(op, params, right_hand_side, law=law, source=f"torch.{op}")


ROWS = (
    _solves("linalg.solve", "A B", "B"),
    _solves("linalg.solve_triangular", "input B", "B"),
    _solves("linalg.tensorsolve", "A B dims", "B"),
    _solves("linalg.lu_solve", "LU pivots B", "B"),
    _solves("linalg.ldl_solve", "LD pivots B", "B"),
    _solves("lu_solve", "b LU_data LU_pivots", "b"),
    _solves("cholesky_solve", "input input2 upper", "input"),
    Row(
        "ormqr",
        "input tau other left transpose",
        "other",
        law="applies an orthogonal matrix that is equal on every rank",
        source="torch.ormqr",
    ),
    # Hands back a copy of the matrix beside the solution.
    Row("triangular_solve", "b A", law="results of two types: the solution and the matrix"),
    Row("linalg.solve_ex", "A B", law="results of two types: the solution and a status"),
)
