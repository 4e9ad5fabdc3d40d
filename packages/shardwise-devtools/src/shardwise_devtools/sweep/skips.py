"""Which operators of the database does the sweep leave out, and why? Everything else is tried."""

from __future__ import annotations

_RANDOM = "random: the database seeds it anew in every call; its rule is judged by oracle/random_types.py"
_UNINITIALISED = "its values are whatever was in memory"
_GPU = "runs on a GPU only"

SKIPS = {
    **dict.fromkeys(
        (
            "cauchy", "exponential", "geometric", "log_normal", "normal", "uniform", "randn", "randn_like", "rand_like",
            "randint", "randint_like", "multinomial", "bernoulli", "nn.functional.rrelu", "nn.functional.dropout",
            "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
            "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d",
        ),
        _RANDOM,
    ),
    **dict.fromkeys(("svd_lowrank", "pca_lowrank"), "an approximation, whose error is random and whose value is not"),
    **dict.fromkeys(
        ("empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"), _UNINITIALISED
    ),
    **dict.fromkeys(("resize_", "resize_as_"), "leaves new elements uninitialised"),
    "to_sparse": "its result is sparse, and types are about dense tensors",
    **dict.fromkeys(
        ("jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref",
         "jiterator_2inputs_2outputs", "torch._scaled_mm", "torch._scaled_mm_v2",
         "torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward"),
        _GPU,
    ),
}  # fmt: skip
"""By the database's name of the operator, all variants alike."""
