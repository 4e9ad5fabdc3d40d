"""Transforms mix the dims that they transform; all others are a batch.

All are linear; those from or to real numbers, over the reals.
"""

from __future__ import annotations

from ..propagation.dim_labels import Call, Labeller, Labelling, dims_given
from ..schema import TORCHS, OpRule
from ..vocabulary.labellers import because, by_role, kept

_WHY = "every frequency is a sum over all elements of the dim"
_SHIFTED = "elements move from one shard into the next"
_WINDOWS = "windows reach into the next shard"


def _along_one(call: Call) -> Labelling | None:
    dims = dims_given(Call(call.tensors, {"dim": -1, **call.arguments}), "dim")
    return None if dims is None else kept(call, dims, _WHY)


def _along_two(call: Call) -> Labelling | None:
    dims = dims_given(Call(call.tensors, {"dim": (-2, -1), **call.arguments}), "dim")
    return None if dims is None else kept(call, dims, _WHY)


def _along_many(call: Call) -> Labelling | None:
    """All dims, or as many last ones as there are sizes."""
    given = dict(call.arguments)
    if given.get("dim") is None and isinstance(given.get("s"), (tuple, list)):
        given["dim"] = tuple(range(-len(given["s"]), 0))
    dims = dims_given(Call(call.tensors, given), "dim")
    return None if dims is None else kept(call, dims, _WHY)


def _shifted(call: Call) -> Labelling | None:
    dims = dims_given(call, "dim")
    return None if dims is None else kept(call, dims, _SHIFTED)


def _short_time(call: Call) -> Labelling | None:
    """``[b] l -> [b] f t``, and complex numbers as pairs in a last dim if they are asked for."""
    pairs = not call.get("return_complex") and "complex" not in call.first.dtype
    batch = "b " if call.first.ndim == 2 else ""
    text = f"{batch}[l], [w] -> {batch}f t{' x' if pairs else ''}"
    return because(_WINDOWS, by_role("input window", text))(call)


def _short_time_back(call: Call) -> Labelling | None:
    batch = "b " if call.first.ndim == 3 else ""
    return because(_WINDOWS, by_role("input window", f"{batch}[f] [t], [w] -> {batch}l"))(call)


def _transform(op: str, labels: Labeller, params: str = TORCHS) -> OpRule:
    law = "a sum with fixed complex coefficients; linear over the reals"
    return OpRule(op, params, "input", law=law, labels=labels)


_ONE_DIM = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")

RULES = (
    *(_transform(f"fft.{op}", _along_one) for op in _ONE_DIM),
    *(_transform(f"fft.{op}2", _along_two) for op in _ONE_DIM),
    *(_transform(f"fft.{op}n", _along_many) for op in _ONE_DIM),
    *(_transform(op, _along_many, "input dim") for op in ("_fft_c2c", "_fft_c2r", "_fft_r2c")),
    *(
        OpRule(op, linear="input", law="moves elements without mixing them", labels=_shifted)
        for op in ("fft.fftshift", "fft.ifftshift")
    ),
    OpRule(
        "stft",
        linear="input window",
        law="transforms of windows: bilinear in the signal and the window",
        labels=_short_time,
    ),
    OpRule(
        "istft",
        linear="input",
        law="inverse transforms divided by the windows' overlap",
        labels=_short_time_back,
    ),
)
