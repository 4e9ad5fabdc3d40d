"""Which operators draw random numbers? Their results are equal on every rank only if the generators are.

Dropout with equal masks is linear; in evaluation it is the identity. ``draws`` says which of the two a call is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schema import Kind, OpRule

_FACTORIES = "rand randn randint randperm"
_FILLS = "normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ bernoulli_"
_INITIALISERS = "kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ orthogonal_ sparse_"
_ATTENTION_KERNELS = {
    "_scaled_dot_product_attention_math": "attn_mask dropout_p is_causal dropout_mask",
    "_scaled_dot_product_flash_attention": "dropout_p is_causal return_debug_mask",
    "_scaled_dot_product_flash_attention_for_cpu": "dropout_p is_causal",
    "_scaled_dot_product_efficient_attention": "attn_bias compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_cudnn_attention": "attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask",
    "_flash_attention_forward": "cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask",
    "_efficient_attention_forward": "bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p",
}
_ZEROED = "keeps or drops each element: linear when the mask is equal on every rank"


def _drops(p: str = "p", training: str = "training", *, by_default: bool) -> Any:
    def draws(static: Mapping[str, Any]) -> bool:
        return bool(static.get(training, by_default)) and static.get(p, 0.5) != 0

    return draws


def _dropout(op: str, *, training: str = "training", by_default: bool = True, linear: bool = True) -> OpRule:
    draws = _drops(training=training, by_default=by_default)

    def shifts(static: Mapping[str, Any]) -> str | None:
        return "dropped elements are set to a constant other than zero" if draws(static) else None

    return OpRule(
        op,
        f"input p {training} inplace",
        "input",
        law=_ZEROED if linear else "the identity in evaluation; in training it adds a constant",
        source=f"torch.nn.functional.{op}",
        kind=Kind.RANDOM,
        static=("p", training),
        guard=None if linear else shifts,
        draws=draws,
    )


def _random(names: str, params: str = "") -> tuple[OpRule, ...]:
    return tuple(
        OpRule(name, params, kind=Kind.RANDOM, law="drawn from the generator in use") for name in names.split()
    )


def _attention_draws(static: Mapping[str, Any]) -> bool:
    return static.get("dropout_p", 0.0) != 0.0 and bool(static.get("training", True))


def _recurrent_draws(static: Mapping[str, Any]) -> bool:
    """The packed-sequence overload has one more operand in front, so its later arguments stand one place further."""
    shifted = isinstance(static.get("num_layers"), bool)
    dropout = static.get("train" if shifted else "dropout", 0.0)
    train = static.get("bidirectional" if shifted else "train", False)
    return bool(dropout) and bool(train)


_POOL = "input kernel_size output_size output_ratio return_indices _random_samples"

RULES = (
    *_random(_FACTORIES),
    *_random(_FILLS, "~input"),
    *_random(_INITIALISERS, "~tensor"),
    *_random("rand_like randn_like randint_like", "~input"),
    *_random("bernoulli poisson binomial multinomial", "input prob"),
    *_random("normal", "mean std"),
    *_random("_standard_gamma _sample_dirichlet", "input"),
    *_random("gumbel_softmax", "logits tau"),
    *_random("fractional_max_pool2d fractional_max_pool3d", _POOL),
    *_random("fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices", _POOL),
    # Randomised ranges: the result is an approximation that depends on the draw.
    *_random("pca_lowrank svd_lowrank lobpcg", "A"),
    _dropout("dropout"),
    _dropout("dropout1d"),
    _dropout("dropout2d"),
    _dropout("dropout3d"),
    _dropout("feature_dropout", training="train"),
    _dropout("torch.dropout", training="train"),
    OpRule(
        "native_dropout",
        "input p train",
        law="dropout that hands out its mask too, which follows from no value: there is no one law for both",
        source="torch.native_dropout",
        kind=Kind.RANDOM,
        static=("p", "train"),
        draws=_drops(training="train", by_default=True),
    ),
    _dropout("alpha_dropout", by_default=False, linear=False),
    _dropout("feature_alpha_dropout", by_default=False, linear=False),
    _dropout("torch.alpha_dropout", training="train", linear=False),
    _dropout("torch.feature_alpha_dropout", training="train", linear=False),
    OpRule(
        "rrelu",
        "input lower upper training",
        law="a slope drawn per element in training",
        kind=Kind.RANDOM,
        static=("training",),
        draws=lambda static: bool(static.get("training", False)),
    ),
    OpRule(
        "scaled_dot_product_attention",
        "query key value attn_mask dropout_p is_causal",
        "value",
        law="weights from query and key, a weighted sum of value",
        source="torch.nn.functional.scaled_dot_product_attention",
        kind=Kind.RANDOM,
        static=("dropout_p",),
        draws=_attention_draws,
    ),
    # Besides their result, the kernels return what the backward pass needs, which is not linear in anything.
    *(
        OpRule(
            op,
            f"query key value {further}",
            law="weights from query and key; returns their normaliser too",
            kind=Kind.RANDOM,
            static=("dropout_p",),
            draws=_attention_draws,
        )
        for op, further in _ATTENTION_KERNELS.items()
    ),
    OpRule(
        "multi_head_attention_forward",
        "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn dropout_p"
        " out_proj_weight out_proj_bias training",
        law="projections with biases around attention",
        kind=Kind.RANDOM,
        static=("dropout_p", "training"),
        draws=_attention_draws,
    ),
    *(
        OpRule(
            op,
            "input hx params has_biases num_layers dropout train bidirectional",
            law="gates are non-linear; dropout between layers in training",
            kind=Kind.RANDOM,
            static=("num_layers", "dropout", "train", "bidirectional"),
            draws=_recurrent_draws,
        )
        for op in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    ),
)
