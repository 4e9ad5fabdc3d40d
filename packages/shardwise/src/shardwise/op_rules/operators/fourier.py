"""Which spectral transforms are linear? All of them; those from or to real numbers, over the reals."""

from __future__ import annotations

from ..schema import OpRule

_LAW = "a sum with fixed complex coefficients; linear over the reals"
_ONE_DIM = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_MANY_DIMS = tuple(f"{name}{suffix}" for name in _ONE_DIM for suffix in ("2", "n"))

RULES = (
    *(OpRule(f"fft.{op}", "input n dim norm", "input", law=_LAW, source=f"torch.fft.{op}") for op in _ONE_DIM),
    *(OpRule(f"fft.{op}", "input s dim norm", "input", law=_LAW, source=f"torch.fft.{op}") for op in _MANY_DIMS),
    *(
        OpRule(f"fft.{op}", "input dim", "input", law="moves elements without mixing them", source=f"torch.fft.{op}")
        for op in ("fftshift", "ifftshift")
    ),
    *(OpRule(op, "input dim", "input", law=_LAW, source=f"aten::{op}") for op in ("_fft_c2c", "_fft_c2r", "_fft_r2c")),
    OpRule(
        "stft",
        "input n_fft hop_length win_length window",
        "input window",
        law="transforms of windows: bilinear in the signal and the window",
        source="torch.stft",
    ),
    OpRule(
        "istft",
        "input n_fft hop_length win_length window",
        "input",
        law="inverse transforms divided by the windows' overlap",
        source="torch.istft",
    ),
)
