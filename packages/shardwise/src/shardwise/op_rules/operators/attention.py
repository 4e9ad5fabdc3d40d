"""What does attention with a user's own score function do to types? Nothing that commutes with a pending sum.

The attention of ``nn.functional`` draws dropout masks and has its rules in ``random.py``. Flex attention hands back the
log-sum-exp beside its result, which does not depend on value at all, so it is not linear in value as a whole.
"""

from __future__ import annotations

from ..schema import OpRule

RULES = (
    OpRule(
        "flex_attention",
        "query key value score_mod block_mask scale kernel_options score_mod_other_buffers mask_mod_other_buffers",
        law="weights from query and key by any score function, a weighted sum of value, and their normaliser",
        source="torch.nn.attention.flex_attention; the tensors that its functions capture are operands",
    ),
)
