"""Which losses are there, and with which parameters? None but ``nll_loss`` is linear in its input.

Some are linear in the weights of their terms, or in the probabilities that they aim at.

``nll_loss`` stands in ``reduction.py``. Parameters are those of ``nn.functional``; ATen's have the reduction's number
in the place of ``size_average`` (``op_rules/operators/dims/losses.py`` reads both).
"""

from __future__ import annotations

from ..schema import OpRule
from .guards import first_of, floating, only, pending

_LEGACY = "size_average reduce reduction"
_PARAMS: dict[str, str] = {
    "l1_loss": f"input target {_LEGACY} weight",
    "mse_loss": f"input target {_LEGACY} weight",
    "smooth_l1_loss": f"input target {_LEGACY} beta",
    "huber_loss": "input target reduction delta weight",
    "binary_cross_entropy": f"input target weight {_LEGACY}",
    "binary_cross_entropy_with_logits": f"input target weight {_LEGACY} pos_weight",
    "kl_div": f"input target {_LEGACY} log_target",
    "poisson_nll_loss": "input target log_input full size_average eps reduce reduction",
    "gaussian_nll_loss": "input target var full eps reduction",
    "hinge_embedding_loss": f"input target margin {_LEGACY}",
    "cosine_embedding_loss": f"input1 input2 target margin {_LEGACY}",
    "margin_ranking_loss": f"input1 input2 target margin {_LEGACY}",
    "soft_margin_loss": f"input target {_LEGACY}",
    "multi_margin_loss": f"input target p margin weight {_LEGACY}",
    "multilabel_margin_loss": f"input target {_LEGACY}",
    "multilabel_soft_margin_loss": f"input target weight {_LEGACY}",
    "triplet_margin_loss": f"anchor positive negative margin p eps swap {_LEGACY}",
    "triplet_margin_with_distance_loss": "anchor positive negative distance_function margin swap reduction",
    "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
    "cross_entropy": "input target weight size_average ignore_index reduce reduction label_smoothing",
    "cross_entropy_loss": "input target weight reduction ignore_index label_smoothing",
    "linear_cross_entropy": "input linear_weight target linear_bias weight reduction ignore_index label_smoothing",
    "nll_loss_forward": "input target weight reduction ignore_index",
    "nll_loss2d_forward": "input target weight reduction ignore_index",
}

_IN_WEIGHTS = "binary_cross_entropy binary_cross_entropy_with_logits multi_margin_loss multilabel_soft_margin_loss"
_IN_TARGETS = "cross_entropy linear_cross_entropy"
_PENDING_TARGETS = first_of(
    only("label_smoothing", 0, 0.0, reason="adds the same to the targets of every rank", default=0.0),
    pending("weight", floating("divides by the weights of the classes that are aimed at", "target")),
    pending("target", floating("class numbers are no terms of a sum", "target")),
)


def _rule(op: str, params: str) -> OpRule:
    if op in _IN_WEIGHTS.split():
        law = "is a loss: linear in nothing but the weights of its terms"
        return OpRule(op, params, "weight", law=law, source=f"torch.nn.functional.{op}")
    if op in _IN_TARGETS.split():
        law = "is a loss: linear in nothing but probabilities to aim at and the weights of classes"
        static = ("label_smoothing",)
        source = f"torch.nn.functional.{op}"
        return OpRule(op, params, "target weight", law=law, source=source, static=static, guard=_PENDING_TARGETS)
    return OpRule(op, params, law="is a loss: a pending sum does not pass")


RULES = tuple(_rule(op, params) for op, params in _PARAMS.items())
