"""What operators do to a factor in front of their operands: laws beside the linear ones, by name of the operator.

A law is a sum of products like a linear law (``schema.OpRule``), with powers: ``"input other^-1"`` for div. From it
follows the scale of the result. What is listed in ``NOT_HOMOGENEOUS`` has no such law: a factor stays inside.
Source: docs/semantics.md section 9; Euler's f(cx) = c**k f(x).
"""

from __future__ import annotations

from typing import Final

_FIRST_DEGREE = """
abs relu leaky_relu rrelu prelu amax amin aminmax cummax cummin median nanmedian mode kthvalue topk sort msort norm
linalg.vector_norm linalg.norm linalg.matrix_norm frobenius_norm nuclear_norm native_norm std nanmean nansum
linalg.svdvals nan_to_num dropout alpha_dropout feature_dropout native_dropout threshold hypot
"""
_JOINED = "max min maximum minimum fmax fmin dist cdist pairwise_distance l1_loss hypot fmod remainder"
_COMPARED = "eq ne lt gt le ge isclose less greater less_equal greater_equal not_equal"

LAWS: Final[dict[str, str]] = {
    **dict.fromkeys(_FIRST_DEGREE.split(), "input"),
    **dict.fromkeys(_JOINED.split(), "input + other"),
    "cdist": "x1 + x2",
    "pairwise_distance": "x1 + x2",
    "l1_loss": "input + target",
    "div": "input other^-1",
    "rdiv": "other input^-1",
    "addcdiv": "input + value tensor1 tensor2^-1",
    "reciprocal": "input^-1",
    "square": "input^2",
    "var": "input^2",
    "mse_loss": "input^2 + target^2",
    "sqrt": "input^1/2",
    "rsqrt": "input^-1/2",
    "pow": "input^exponent",
    "sign": "input^0",
    "sgn": "input^0",
    **dict.fromkeys(["layer_norm", "group_norm", "native_layer_norm"], "input^0 weight + bias"),
    **dict.fromkeys(["rms_norm", "_fused_rms_norm"], "input^0 weight"),
    "normalize": "input^0",
    "cosine_similarity": "x1^0 x2^0",
    "full": "fill_value",
    "full_like": "fill_value",
    "new_full": "fill_value",
    "scalar_tensor": "s",
    **dict.fromkeys(["clamp", "clip"], "input + min + max"),
    "clamp_min": "input + min",
    "clamp_max": "input + max",
}
"""By operator, where the linear law does not say it."""

HELD: Final = {"clamp": ("max",), "clip": ("max",), "where": ("input", "other"), "torch.where": ("input", "other")}
"""Where the number 1 may stand for what a coefficient is held at, as in clipping."""

FLOORED: Final = {"clamp": "min", "clip": "min", "clamp_min": "min"}
"""Where the number 1 is the least that a root of mean squares divides by, as in Adafactor's clipping."""

JOINED: Final = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"])
"""Operands that lie side by side in the result: one of unknown scale has no scale for what is beside it."""

COMPARED: Final = frozenset(_COMPARED.split())
"""Both operands have one scale, and the result is an answer."""

POSITIONED: Final = frozenset(
    ["cummax", "cummin", "median", "nanmedian", "mode", "kthvalue", "topk", "sort", "max", "min"]
)
"""The second result, if there are two, are positions: a factor above zero leaves the order as it is."""

_CURVED = """
exp exp2 expm1 log log2 log10 log1p logit sigmoid logsigmoid log_sigmoid tanh softmax log_softmax softmin gumbel_softmax
logsumexp gelu silu mish softplus elu selu celu relu6 hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma cross_entropy
binary_cross_entropy binary_cross_entropy_with_logits scaled_dot_product_attention glu special.expit special.erf
smooth_l1_loss huber_loss
"""
NOT_HOMOGENEOUS: Final = frozenset(_CURVED.split())
"""f(nx) is no multiple of f(x) by a power of n."""

_MEANS = """
mean nanmean cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
binary_cross_entropy_with_logits kl_div poisson_nll_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss
cosine_embedding_loss triplet_margin_loss triplet_margin_with_distance_loss multi_margin_loss multilabel_margin_loss
multilabel_soft_margin_loss soft_margin_loss ctc_loss nll_loss2d adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d std var std_mean var_mean cov corrcoef norm layer_norm rms_norm group_norm instance_norm batch_norm
"""
AVERAGING: Final = frozenset(_MEANS.split())
"""What may divide by a count of elements, which is each rank's own where a dim of them is sharded."""
