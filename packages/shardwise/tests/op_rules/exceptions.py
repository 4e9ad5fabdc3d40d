"""What the registry does not claim although it may be true, and what is not tried here; each with its reason."""

_SCALES = "a product into the pending destination; only sums are claimed for reductions into a destination"
_NO_NAN = "true only for values without NaN or infinity"

NEWER = ("linalg.polar", "linalg.matrix_sqrth", "nn.functional.scaled_addmm")
"""Operators that the oldest torch of the range does not have; tried on those that do, where the CPU has them."""

TRUE_BUT_REFUSED: dict[str, str] = {
    "scatter-reduce=multiply": _SCALES,
    "index_reduce-prod": _SCALES,
    "nan_to_num": _NO_NAN,
    "nansum": _NO_NAN,
}

WITHOUT_CASE: dict[str, str] = {
    "_int_mm": "takes int8 tensors only, whose parts cannot be drawn at will",
    "chalf": "half-precision complex numbers can hardly be computed with on a CPU; cfloat is the same law",
    "grouped_mm": "runs on accelerators only",
    "scalar_tensor": "takes numbers only, which may be typed scalars",
    "sspaddmm": "takes sparse tensors, whose parts differ in structure",
    "to_mkldnn": "an opaque layout in float32 only",
}
