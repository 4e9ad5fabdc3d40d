"""What the rule book does not claim although it may be true, and what is not tried here; each with its reason."""

_OWN_STATISTICS = "affine in weight and bias; refused whole while the input is normalised by its own statistics"
_SECOND_RESULT = "the solution alone is linear; the row speaks for all results, and the others are not"
_SCALES = "a product into the pending destination; only sums are claimed for reductions into a destination"
_NO_NAN = "true only for values without NaN or infinity"

TRUE_BUT_REFUSED: dict[str, str] = {
    "scatter-reduce=multiply": _SCALES,
    "index_reduce-prod": _SCALES,
    "batch_norm-training=True": _OWN_STATISTICS,
    "instance_norm": _OWN_STATISTICS,
    "nan_to_num": _NO_NAN,
    "nansum": _NO_NAN,
    "linalg.solve_ex-solution": _SECOND_RESULT,
    "linalg.lstsq-solution": _SECOND_RESULT,
    "cross_entropy-soft": "linear in a target of probabilities, but the same parameter also takes class numbers",
}

_ANOTHER_DEVICE = "runs on accelerators only"

WITHOUT_CASE: dict[str, str] = {
    "_int_mm": "takes int8 tensors only, whose parts cannot be drawn at will",
    "chalf": "half-precision complex numbers can hardly be computed with on a CPU; cfloat is the same law",
    "grouped_mm": _ANOTHER_DEVICE,
    "miopen_convolution": _ANOTHER_DEVICE,
    "miopen_convolution_transpose": _ANOTHER_DEVICE,
    "scalar_tensor": "takes numbers only, which may be typed scalars",
    "sspaddmm": "takes sparse tensors, whose parts differ in structure",
    "to_mkldnn": "an opaque layout in float32 only",
}
