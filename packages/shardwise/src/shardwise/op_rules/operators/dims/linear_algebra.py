"""Matrices in batches: a batch's dims are kept, a matrix is taken as a whole, a right-hand side's columns are free."""

from __future__ import annotations

import math
from typing import Any

from ...propagation.dim_labels import Call, Fate, Labeller, Labelling, Shape, numbered, signature
from ..roles import because, by_role, tensor_at
from .reduction import reduces

_WHY = "rows and columns of a matrix are mixed"

# "x", "y" and "z" are dims that no operand has.
_SIGNATURES: dict[str, str] = {
    "*b [m] [n] -> *b [m] [n]": """
        inverse cholesky cholesky_inverse matrix_exp matrix_power
        linalg.inv linalg.cholesky linalg.matrix_exp linalg.matrix_power
    """,
    "*b [m] [n] -> *b [n] [m]": "pinverse",
    "*b [m] [n] -> *b": "det logdet slogdet linalg.det linalg.slogdet linalg.cond",
    "*b [m] [n] -> *b x": "linalg.eigvals linalg.eigvalsh linalg.svdvals",
    "*b [m] [n] -> *b x, *b [m] [n]": "linalg.eig linalg.eigh",
    "*b [m] [n] -> *b [m] [n], *b x": "geqrf linalg.ldl_factor linalg.lu_factor",
    "*b [m] [n] -> *b [m] [n], *b x, *b": "lu linalg.ldl_factor_ex linalg.lu_factor_ex",
    "*b [m] [n] -> *b [m] [n], *b": "linalg.inv_ex linalg.cholesky_ex",
    "*b [m] [n] -> *b x y, *b x, *b y z": "svd linalg.svd",
    "*b [m] [n], *b [k] -> *b [m] [n]": "orgqr linalg.householder_product",
}
_SOLVERS: dict[str, tuple[str, str]] = {
    "linalg.lu_solve": ("LU pivots B", "*b [m] [n], *b [p], *b [m] k -> *b [m] k"),
    "linalg.ldl_solve": ("LD pivots B", "*b [m] [n], *b [p], *b [m] k -> *b [m] k"),
    "lu_solve": ("b LU_data LU_pivots", "*b [m] k, *b [m] [n], *b [p] -> *b [m] k"),
    "cholesky_solve": ("input input2", "*b [m] k, *b [m] [n] -> *b [m] k"),
    "linalg.solve_triangular": ("input B", "*b [m] [n], *b [m] k -> *b [m] k"),
    "ormqr": ("input tau other", "*b [m] [n], *b [p], *b [m] k -> *b [m] k"),
}
"""With the unknowns in columns; ``left=False`` has them in rows."""


def _matrices(text: str) -> Labeller:
    return because(_WHY, signature(text))


def _solving(params: str, text: str) -> Labeller:
    columns = because(_WHY, by_role(params, text))
    rows = because(_WHY, by_role(params, text.replace("[m] k", "k [m]")))
    return lambda call: (columns if call.get("left", True) else rows)(call)


def _is_vector(matrix: Shape, right: Shape) -> bool:
    """True if a right-hand side is a vector for each matrix: it has the matrices' shape without the columns."""
    return right.ndim == 1 or right.shape == matrix.shape[:-1]


def _solve(status: bool) -> Labeller:
    extra = ", *b" if status else ""

    def label(call: Call) -> Labelling | None:
        matrix, right = tensor_at(call, "A"), tensor_at(call, "B")
        if matrix is None or right is None:
            return None
        unknown = "[m]" if _is_vector(matrix, right) else "[m] k" if call.get("left", True) else "k [m]"
        return because(_WHY, by_role("A B", f"*b [m] [n], *b {unknown} -> *b {unknown}{extra}"))(call)

    return label


def _least_squares(call: Call) -> Labelling | None:
    """Residuals, ranks and singular values are left empty by some drivers and for some shapes: they have one dim then.

    Which driver is the default depends on the device.
    """
    matrix, right = tensor_at(call, "A"), tensor_at(call, "B")
    if matrix is None or right is None or matrix.ndim < 2:
        return None
    columns = "" if _is_vector(matrix, right) else " k"
    driver = call.get("driver")
    residuals = f"*b{columns}" if matrix.shape[-2] > matrix.shape[-1] and driver not in (None, "gelsy") else "x"
    rank = "*b" if driver in ("gelsy", "gelsd", "gelss") else "x"
    singular = "*b x" if driver in ("gelsd", "gelss") else "x"
    text = f"*b [m] [n], *b [m]{columns} -> *b [n]{columns}, {residuals}, {rank}, {singular}"
    return because(_WHY, by_role("A B", text))(call)


def _tolerant(text: str) -> Labeller:
    """A matrix, and tolerances that are broadcast to the batch."""

    def label(call: Call) -> Labelling | None:
        terms = [text.partition("->")[0], *["*b"] * (len(call.tensors) - 1)]
        return because(_WHY, signature(", ".join(terms) + " -> " + text.partition("->")[2]))(call)

    return label


def _qr(call: Call) -> Labelling | None:
    first = "x" if "r" in (call.get("mode"), call.get("other")) else "*b x y"  # "x": no elements, one dim
    return _matrices(f"*b [m] [n] -> {first}, *b y z")(call)


def _lu(call: Call) -> Labelling | None:
    first = "*b x y" if call.get("pivot", True) else "x"
    return _matrices(f"*b [m] [n] -> {first}, *b x y, *b y z")(call)


def _unpacked(call: Call) -> Labelling | None:
    flags = [call.get("unpack_data", call.get("args[2]", True)), call.get("unpack_pivots", call.get("args[3]", True))]
    data, pivots = ("*b x y" if flag else "x" for flag in flags)
    return _matrices(f"*b [m] [n], *b [p] -> {pivots}, {data}, {data}")(call)


def _triangular(call: Call) -> Labelling | None:
    """The matrix comes back beside the solution."""
    return because(_WHY, by_role("b A", "*b [m] k, *b [m] [n] -> *b [m] k, *b [m] [n]"))(call)


def _powers_of_each(call: Call) -> Labelling | None:
    """vander: as many powers as there are numbers, unless the call says how many."""
    many = call.get("N", call.get("other"))
    if many is not None:
        return signature("*b n -> *b n x")(call)
    return because("there are as many powers as numbers on this rank", signature("*b [n] -> *b [n] x"))(call)


def _entire(call: Call) -> Labelling:
    """Every dim of every operand is mixed, and the result has dims of its own."""
    rows = tuple(numbered(tensor.ndim, f"t{at}.") for at, tensor in enumerate(call.tensors))
    mixed = [label for row in rows for label in row]
    return Labelling(rows, ((),), dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, _WHY))


def _norm(call: Call) -> Labelling | None:
    """Of vectors along one dim, of matrices along two, and of everything if nothing is said."""
    order, dim = call.get("ord"), call.get("dim")
    one = isinstance(dim, int) or (isinstance(dim, (tuple, list)) and len(dim) == 1)
    if one or (dim is None and call.first.ndim == 1):
        fate, why = _powers(2 if order is None else order)
        return reduces(fate, why)(call)
    return reduces(Fate.OPAQUE, "the norm of all ranks' elements is no sum of the ranks' norms")(call)


def _powers(order: Any) -> tuple[Fate, str]:
    """How a norm of a vector combines the elements."""
    if order in (0, 1):
        return Fate.TOTAL, ""
    if isinstance(order, (int, float)) and math.isinf(order):
        return Fate.EXTREMUM, ""
    return Fate.OPAQUE, "the powers of all ranks are summed before the root"


def _matrix_norm(call: Call) -> Labelling | None:
    return reduces(Fate.OPAQUE, _WHY)(Call(call.tensors, {"dim": (-2, -1), **call.arguments}))


LABELS: dict[str, Labeller] = {
    **{name: _matrices(text) for text, names in _SIGNATURES.items() for name in names.split()},
    **{name: _solving(*rule) for name, rule in _SOLVERS.items()},
    "linalg.solve": _solve(status=False),
    "linalg.solve_ex": _solve(status=True),
    "linalg.lstsq": _least_squares,
    "linalg.pinv": _tolerant("*b [m] [n] -> *b [n] [m]"),
    "linalg.matrix_rank": _tolerant("*b [m] [n] -> *b"),
    "qr": _qr,
    "linalg.qr": _qr,
    "linalg.lu": _lu,
    "lu_unpack": _unpacked,
    "triangular_solve": _triangular,
    "vander": _powers_of_each,
    "linalg.vander": _powers_of_each,
    "linalg.tensorsolve": _entire,
    "linalg.tensorinv": _entire,
    "linalg.norm": _norm,
    "linalg.matrix_norm": _matrix_norm,
}
