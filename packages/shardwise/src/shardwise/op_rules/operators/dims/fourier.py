"""Transforms mix the dims that they transform; all others are a batch."""

from __future__ import annotations

from ...propagation.dim_labels import Call, Labeller, Labelling, dims_given
from ..moves import kept
from ..roles import because, by_role

_WHY = "every frequency is a sum over all elements of the dim"
_SHIFTED = "elements move from one shard into the next"
_WINDOWS = "windows reach into the next shard"

_ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]


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


LABELS: dict[str, Labeller] = {
    **{f"fft.{op}": _along_one for op in _ONE},
    **{f"fft.{op}2": _along_two for op in _ONE},
    **{f"fft.{op}n": _along_many for op in _ONE},
    **dict.fromkeys(["_fft_c2c", "_fft_c2r", "_fft_r2c"], _along_many),
    "fft.fftshift": _shifted,
    "fft.ifftshift": _shifted,
    "stft": _short_time,
    "istft": _short_time_back,
}
