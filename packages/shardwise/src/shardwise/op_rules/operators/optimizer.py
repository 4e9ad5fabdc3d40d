"""Which operators does an optimizer step consist of? The foreach and fused families, over lists of parameters.

Their destinations keep their types. What a gradient's type must be before the step is checked elsewhere, once.
"""

from __future__ import annotations

from ..schema import Kind, OpRule

_FOREACH = """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone copy cos cosh div erf erfc exp expm1 floor
    frac lerp lgamma log log10 log1p log2 max maximum minimum mm mul neg norm pow powsum reciprocal round rsqrt sigmoid
    sign sin sinh sqrt sub tan tanh trunc zero
"""
_FUSED = "adam adamw sgd adagrad"
_SCALING = "_amp_foreach_non_finite_check_and_unscale _amp_update_scale"

RULES = (
    *(OpRule(f"_foreach_{op}", kind=Kind.OPTIMIZER, law="each of a list") for op in _FOREACH.split()),
    *(OpRule(f"_fused_{op}", kind=Kind.OPTIMIZER, law="one fused update") for op in _FUSED.split()),
    *(OpRule(op, kind=Kind.OPTIMIZER, law="gradient scaling") for op in _SCALING.split()),
)
