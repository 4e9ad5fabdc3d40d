"""Which losses are there, and with which parameters? None but ``nll_loss`` is linear, so no pending sum passes.

``nll_loss`` stands in ``reduction.py``. Parameters are those of ``nn.functional``; ATen's have the reduction's number
in the place of ``size_average`` (``rules/dims/losses.py`` reads both).
"""

from __future__ import annotations

from .row import Row

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

ROWS = tuple(Row(op, params, law="is a loss: a pending sum does not pass") for op, params in _PARAMS.items())
