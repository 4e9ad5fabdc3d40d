"""Matrices in batches: a batch's dims are kept, a matrix is taken as a whole, a right-hand side's columns are free.

Solvers are linear in the right-hand side, never in the matrix; decompositions, inverses, norms and powers in nothing.
"""

from __future__ import annotations

from ..propagation.dim_labels import Call, Fate, Labeller, Labelling, Shape, numbered, signature
from ..schema import TORCHS, Arguments, Guard, OpRule, Result, opaque
from ..vocabulary.labellers import because, by_role, tensor_at
from ..vocabulary.norms import euclidean_only
from .reduction import euclidean, norm_of, reduces

_WHY = "rows and columns of a matrix are mixed"


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


def _lu(call: Call) -> Labelling | None:
    first = "*b x y" if call.get("pivot", True) else "x"
    return _matrices(f"*b [m] [n] -> {first}, *b x y, *b y z")(call)


def _triangular(call: Call) -> Labelling | None:
    """The matrix comes back beside the solution."""
    return because(_WHY, by_role("b A", "*b [m] k, *b [m] [n] -> *b [m] k, *b [m] [n]"))(call)


def _powers_of_each(call: Call) -> Labelling | None:
    """vander: as many powers as there are numbers, unless the call says how many."""
    many = call.get("N")
    if many is not None:
        return signature("*b n -> *b n x")(call)
    return because("there are as many powers as numbers on this rank", signature("*b [n] -> *b [n] x"))(call)


def _entire(call: Call) -> Labelling:
    """Every dim of every operand is mixed, and the result has dims of its own."""
    rows = tuple(numbered(tensor.ndim, f"t{at}.") for at, tensor in enumerate(call.tensors))
    mixed = [label for row in rows for label in row]
    return Labelling(rows, ((),), dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, _WHY))


def _matrix_norm(call: Call) -> Labelling | None:
    return reduces(Fate.OPAQUE, _WHY)(Call(call.tensors, {"dim": (-2, -1), **call.arguments}))


def _qr(call: Call) -> Labelling | None:
    first = "x" if call.get("mode") == "r" else "*b x y"  # "x": no elements, one dim
    return _matrices(f"*b [m] [n] -> {first}, *b y z")(call)


def _unpacked(call: Call) -> Labelling | None:
    data, pivots = ("*b x y" if call.get(flag, True) else "x" for flag in ("unpack_data", "unpack_pivots"))
    return _matrices(f"*b [m] [n], *b [p] -> {pivots}, {data}, {data}")(call)


def _norm(call: Call) -> Labelling | None:
    """Of vectors along one dim, of matrices along two, and of everything if nothing is said."""
    order, dim = call.get("ord"), call.get("dim")
    one = isinstance(dim, int) or (isinstance(dim, (tuple, list)) and len(dim) == 1)
    if one or (dim is None and call.first.ndim == 1):
        return norm_of("ord")(Call(call.tensors, {**call.arguments, "ord": 2 if order is None else order}))
    if order in (None, "fro"):
        return reduces(Fate.NORM)(call)
    return reduces(Fate.OPAQUE, "the norm of all ranks' elements is no sum of the ranks' norms")(call)


def _of_vector(static: Arguments) -> str | None:
    """The guard of ``linalg.norm``, whose order 2 is of vectors only the root of a sum of squares."""
    is_vector = getattr(static.get("input"), "ndim", 0) == 1
    order = static.get("ord")
    return euclidean_only(static if is_vector or order in (None, "fro") else {"ord": "spectral"})


def _without_residuals(static: Arguments) -> str | None:
    """lstsq gives residuals, which are squares, for more equations than unknowns; else it leaves them empty."""
    matrix = static.get("A")
    if matrix is not None and matrix.shape[-2] <= matrix.shape[-1]:
        return None
    return "the residuals are squared, and come beside the solution"


def _solves(
    op: str, params: str, right_hand_side: str, labels: Labeller | str, *others: Result, guard: Guard | None = None
) -> OpRule:
    """``others``: the results beside the solution. ``labels`` may be a signature with the unknowns in columns."""
    if isinstance(labels, str):
        labels = _solving(" ".join(params.split()[: labels.count(",") + 1]), labels)
    law = "applies an inverse that is equal on every rank to the right-hand side"
    static = tuple(params.split()) if guard is not None else ()
    return OpRule(op, params, right_hand_side, others, law=law, static=static, guard=guard, labels=labels)


def _decomposes(names: str, labels: Labeller | str, params: str = "input") -> tuple[OpRule, ...]:
    made = _matrices(labels) if isinstance(labels, str) else labels
    return opaque("decomposes or inverts", names, params, labels=made)


_NORM, _POWER = "is a norm or a distance", "is a power of a matrix"

# In signatures, "x", "y" and "z" are dims that no operand has.
RULES = (
    _solves("linalg.solve", "A B", "B", _solve(status=False)),
    _solves("linalg.solve_ex", "A B", "B", _solve(status=True), Result(of="A")),
    _solves("linalg.solve_triangular", "input B", "B", "*b [m] [n], *b [m] k -> *b [m] k"),
    _solves("linalg.tensorsolve", "A B dims", "B", _entire),
    _solves("linalg.lu_solve", "LU pivots B", "B", "*b [m] [n], *b [p], *b [m] k -> *b [m] k"),
    _solves("linalg.ldl_solve", "LD pivots B", "B", "*b [m] [n], *b [p], *b [m] k -> *b [m] k"),
    # Solution, residuals, rank and singular values.
    _solves(
        "linalg.lstsq",
        "A B",
        "B",
        _least_squares,
        Result("B"),
        Result(of="A"),
        Result(of="A"),
        guard=_without_residuals,
    ),
    _solves("lu_solve", "b LU_data LU_pivots", "b", "*b [m] k, *b [m] [n], *b [p] -> *b [m] k"),
    _solves("cholesky_solve", "input input2 upper", "input", "*b [m] k, *b [m] [n] -> *b [m] k"),
    # Hands back a copy of the matrix beside the solution.
    _solves("triangular_solve", "b A", "b", _triangular, Result("A", of="A")),
    OpRule(
        "ormqr",
        "input tau other left transpose",
        "other",
        law="applies an orthogonal matrix that is equal on every rank",
        labels=_solving("input tau other", "*b [m] [n], *b [p], *b [m] k -> *b [m] k"),
    ),
    *_decomposes("cholesky cholesky_inverse linalg.inv linalg.cholesky", "*b [m] [n] -> *b [m] [n]"),
    *_decomposes("pinverse", "*b [m] [n] -> *b [n] [m]"),
    *_decomposes("linalg.pinv", _tolerant("*b [m] [n] -> *b [n] [m]"), "input rcond"),
    *_decomposes("linalg.matrix_rank", _tolerant("*b [m] [n] -> *b"), "input tol"),
    *_decomposes("logdet slogdet linalg.det linalg.slogdet", "*b [m] [n] -> *b"),
    *_decomposes("linalg.eigvals linalg.eigvalsh linalg.svdvals", "*b [m] [n] -> *b x"),
    *_decomposes("linalg.eig linalg.eigh", "*b [m] [n] -> *b x, *b [m] [n]"),
    *_decomposes("geqrf linalg.ldl_factor linalg.lu_factor", "*b [m] [n] -> *b [m] [n], *b x"),
    *_decomposes("lu linalg.ldl_factor_ex linalg.lu_factor_ex", "*b [m] [n] -> *b [m] [n], *b x, *b"),
    *_decomposes("linalg.inv_ex linalg.cholesky_ex", "*b [m] [n] -> *b [m] [n], *b"),
    *_decomposes("svd linalg.svd", "*b [m] [n] -> *b x y, *b x, *b y z"),
    *_decomposes("linalg.polar", "*b [m] [n] -> *b [m] [n], *b y z", "A"),
    *_decomposes("qr linalg.qr", _qr, "input mode"),
    *_decomposes("linalg.lu", _lu, "input pivot"),
    *_decomposes("lu_unpack", _unpacked, "LU_data LU_pivots unpack_data unpack_pivots"),
    *_decomposes("linalg.householder_product", "*b [m] [n], *b [k] -> *b [m] [n]", "input tau"),
    *_decomposes("linalg.tensorinv", _entire, "input ind"),
    *_decomposes("vander linalg.vander", _powers_of_each, "input N"),
    *opaque(_POWER, "matrix_exp linalg.matrix_power linalg.matrix_sqrth", labels=_matrices("*b [m] [n] -> *b [m] [n]")),
    *opaque(_NORM, "linalg.cond", labels=_matrices("*b [m] [n] -> *b")),
    euclidean("linalg.norm", TORCHS, _norm, static=("ord", "input"), guard=_of_vector),
    *opaque(_NORM, "linalg.matrix_norm", labels=_matrix_norm),
)
