"""Operators that make a tensor: constants, zeros, uninitialised memory, or data from outside.

The template of a ``*_like`` gives shape and dtype only. A value that fills (``full``) may be a typed scalar, whose type
the result then has. There are no labels: what is made has one rank's shape.
"""

from __future__ import annotations

from ..schema import LEFT_OUT, Kind, OpRule
from ..vocabulary.guards import casts, first_of


def _made(kind: Kind, law: str, names: str, params: str = "") -> tuple[OpRule, ...]:
    return tuple(OpRule(name, params, kind=kind, law=law) for name in names.split())


def _copies(op: str, value: str, law: str, template: str = "", *, params: str = "", view: bool = LEFT_OUT) -> OpRule:
    """``value``  the parameter whose values the result has, in its own dtype or in the one that is asked for."""
    return OpRule(
        op,
        f"{template} {params or value} dtype".strip(),
        value,
        law=law,
        kind=Kind.CONSTANT,
        view=view,
        static=("dtype",),
        guard=casts("dtype", source=value),
    )


_SAME = "the same numbers on every rank"
_FILLED = "one value, everywhere"
_WINDOWS = "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall"

RULES = (
    *_made(Kind.CONSTANT, _SAME, "arange range logspace eye tril_indices triu_indices fft.fftfreq fft.rfftfreq"),
    *_made(Kind.CONSTANT, _SAME, "hann_window hamming_window blackman_window bartlett_window kaiser_window"),
    *_made(Kind.CONSTANT, _SAME, " ".join(f"signal.windows.{name}" for name in _WINDOWS.split())),
    OpRule(
        "linspace",
        "start end steps dtype",
        "start + end",
        law="weighted sums of the two ends",
        kind=Kind.CONSTANT,
        static=("dtype",),
        guard=first_of(casts("dtype", source="start"), casts("dtype", source="end")),
    ),
    *_made(Kind.CONSTANT, "ones", "ones"),
    *_made(Kind.ZERO, "zeros", "zeros"),
    *_made(Kind.EMPTY, "uninitialised memory", "empty empty_strided empty_permuted"),
    *_made(
        Kind.EMPTY,
        "memory that may hold other data on every rank",
        "from_numpy frombuffer from_file from_dlpack __array_wrap__ load",
    ),
    *_made(Kind.ZERO, "zeros, of the template's shape", "zeros_like new_zeros zero_ zeros_", "~input"),
    *_made(Kind.ZERO, "the tangent that nobody gave", "_new_zeros_with_same_feature_meta", "~input ~other"),
    *_made(Kind.CONSTANT, "ones, of the template's shape", "ones_like new_ones ones_ eye_ dirac_", "~input"),
    *_made(
        Kind.EMPTY,
        "uninitialised memory, of the template's shape",
        "empty_like new_empty new_empty_strided new resize_ resize resize_as resize_as_ resize_as_sparse_"
        " sparse_resize_ sparse_resize_and_clear_",
        "~input",
    ),
    _copies("full", "fill_value", _FILLED, params="size fill_value"),
    _copies("full_like", "fill_value", _FILLED, "~input"),
    _copies("new_full", "fill_value", _FILLED, "~input", params="size fill_value"),
    _copies("scalar_tensor", "s", _FILLED),
    _copies("tensor", "data", "a copy"),
    _copies("as_tensor", "data", "the same values"),
    _copies("asarray", "obj", "the same values", view=True),
    _copies("new_tensor", "data", "a copy", "~input"),
)
