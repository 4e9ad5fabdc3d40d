"""What comes out of an operator that makes a tensor? Constants, zeros, uninitialised memory, or data from outside.

The template of a ``*_like`` gives shape and dtype only. A value that fills (``full``) may be a typed scalar, whose
type the result then has.
"""

from __future__ import annotations

from ..schema import Kind, OpRule
from .guards import casts

_SEQUENCES = "arange range logspace eye tril_indices triu_indices"
_WINDOWS = "hann_window hamming_window blackman_window bartlett_window kaiser_window"
_SIGNAL_WINDOWS = (
    "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall"
)
_TABLES = "fft.fftfreq fft.rfftfreq"
_OUTSIDE = "from_numpy frombuffer from_file from_dlpack __array_wrap__ load"


def _constants(names: str, prefix: str = "") -> tuple[OpRule, ...]:
    return tuple(
        OpRule(prefix + name, kind=Kind.CONSTANT, law="the same numbers on every rank") for name in names.split()
    )


def _like(kind: Kind, *names: str, params: str = "~input") -> tuple[OpRule, ...]:
    law = {Kind.ZERO: "zeros", Kind.CONSTANT: "ones", Kind.EMPTY: "uninitialised memory"}[kind]
    return tuple(OpRule(name, params, kind=kind, law=f"{law}, of the template's shape") for name in names)


def _filled(op: str, params: str, value: str) -> OpRule:
    return OpRule(
        op,
        f"{params} dtype",
        value,
        law="one value, everywhere",
        source=f"torch.{op}",
        kind=Kind.CONSTANT,
        static=("dtype",),
        guard=casts("dtype", source=value),
    )


def _copied(op: str, data: str, law: str, *, template: str = "", view: bool = False) -> OpRule:
    return OpRule(
        op,
        f"{template} {data} dtype",
        data,
        law=law,
        source=f"torch.{op}",
        kind=Kind.CONSTANT,
        view=view,
        static=("dtype",),
        guard=casts("dtype", source=data),
    )


RULES = (
    *_constants(_SEQUENCES),
    *_constants(_WINDOWS),
    *_constants(_SIGNAL_WINDOWS, "signal.windows."),
    *_constants(_TABLES),
    OpRule(
        "linspace",
        "start end steps",
        "start + end",
        law="weighted sums of the two ends",
        source="torch.linspace",
        kind=Kind.CONSTANT,
    ),
    OpRule("ones", kind=Kind.CONSTANT, law="ones"),
    OpRule("zeros", kind=Kind.ZERO, law="zeros"),
    *(OpRule(op, kind=Kind.EMPTY, law="uninitialised memory") for op in ("empty", "empty_strided", "empty_permuted")),
    *(OpRule(op, kind=Kind.EMPTY, law="memory that may hold other data on every rank") for op in _OUTSIDE.split()),
    *_like(Kind.ZERO, "zeros_like", "new_zeros", "zero_", "zeros_"),
    *_like(Kind.CONSTANT, "ones_like", "new_ones", "ones_", "eye_", "dirac_"),
    *_like(Kind.EMPTY, "empty_like", "new_empty", "new_empty_strided", "new", "resize_", "resize", "sparse_resize_"),
    *_like(Kind.EMPTY, "resize_as", "resize_as_", "resize_as_sparse_", "sparse_resize_and_clear_"),
    _filled("full", "size fill_value", "fill_value"),
    _filled("full_like", "~input fill_value", "fill_value"),
    _filled("new_full", "~input size fill_value", "fill_value"),
    _filled("scalar_tensor", "s", "s"),
    _copied("tensor", "data", "a copy"),
    _copied("as_tensor", "data", "the same values", view=True),
    _copied("asarray", "obj", "the same values", view=True),
    _copied("new_tensor", "data", "a copy", template="~input"),
)
