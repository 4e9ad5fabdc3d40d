"""What do the functions of ``torch.masked`` do to a pending sum? Sums and means of what a mask leaves are linear.

They are whole operators here although they are Python: ``mean`` divides by the elements in its operand's shape.
"""

from __future__ import annotations

from ..schema import OpRule
from .guards import casts

_REDUCTIONS = "prod amax amin argmax argmin median logsumexp"


def _linear(op: str, params: str, law: str) -> OpRule:
    source = f"torch.{op}"
    return OpRule(op, params, "input", law=law, source=source, static=("dtype",), guard=casts("dtype"))


def _opaque(op: str, params: str) -> OpRule:
    return OpRule(op, params, law="combines what the mask leaves: a pending sum does not pass", source=f"torch.{op}")


RULES = (
    _linear("masked.sum", "input dim keepdim dtype mask", "a sum of sums is the sum of everything"),
    _linear("masked.mean", "input dim keepdim dtype mask", "a sum divided by a count that is the same on every rank"),
    _linear("masked.cumsum", "input dim dtype mask", "running sums of what the mask leaves"),
    *(_opaque(f"masked.{name}", "input dim keepdim dtype mask") for name in _REDUCTIONS.split()),
    *(_opaque(f"masked.{name}", "input dim unbiased correction keepdim dtype mask") for name in ("var", "std")),
    *(_opaque(f"masked.{name}", "input dim dtype mask") for name in ("cumprod", "softmax", "log_softmax", "softmin")),
    _opaque("masked.norm", "input ord dim keepdim dtype mask"),
    _opaque("masked.normalize", "input ord dim eps dtype mask"),
    _opaque("masked.logaddexp", "input other dtype input_mask other_mask"),
)
