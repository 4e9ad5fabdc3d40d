"""By what has a rank divided its loss? The mean over its own targets divides by how many it has itself.

cross_entropy(logits, targets)                   how many targets are not ignored
(losses * mask).sum() / mask.sum()               the sum of the mask
cross_entropy(logits, targets) / steps           the product of both
cross_entropy(logits, targets) + 0.01 * aux      nothing: each term has its own
"""

from __future__ import annotations

from typing import TypeGuard

import torch

from ..torch_compat import saved_by

_DIVIDED_BY = {
    "DivBackward0": "other",
    "MeanBackward0": "self_sym_numel",
    "NllLossBackward0": "total_weight",
    "NllLoss2DBackward0": "total_weight",
}
"""What a node has divided by, under the name by which it keeps that."""
_OUTERMOST = ("DivBackward0", "MulBackward0", "ToCopyBackward0", "NegBackward0", "SqueezeBackward0", "ViewBackward0")
"""Behind these what was divided may have been divided before."""
_MEAN = 1
"""What a loss keeps as its reduction if that is the mean."""
_DEPTH = 8


def divisor_of(loss: torch.Tensor) -> float | None:
    """The number, from the graph of ``loss``, a tensor of one element; None where the graph does not tell."""
    node, found = loss.grad_fn, 1.0
    told = False
    for _ in range(_DEPTH):
        if node is None:
            break
        name = node.name()
        by = saved_by(node, _DIVIDED_BY[name]) if name in _DIVIDED_BY else None
        if saved_by(node, "reduction") in (None, _MEAN) and (isinstance(by, int) or _is_number(by)):
            told, found = True, found * float(by)
        if name not in _OUTERMOST:
            break
        inner = [below for below, _ in node.next_functions if below is not None]
        node = inner[0] if len(inner) == 1 else None
    return found if told else None


def _is_number(by: object) -> TypeGuard[torch.Tensor]:
    return isinstance(by, torch.Tensor) and by.numel() == 1
