"""The functions of ``torch.masked``: the mask is broadcast to the input and has its dims.

They are whole operators here although they are Python. Sums and means of what a mask leaves are linear: ``mean``
divides by the elements in its operand's shape.
"""

from __future__ import annotations

from dataclasses import replace

from ..propagation.dim_labels import Call, Fate, Labeller, Labelling, pointwise, singles
from ..schema import OpRule
from ..vocabulary.guards import casts
from . import reduction, scans
from .reduction import norm_of, reduces
from .scans import along

_MEAN = "the mean is over what the mask leaves of this rank's elements only"
_OWN = "the norm is of this rank's elements only"


def _masked(plain: Labeller) -> Labeller:
    """``plain``, which labels the call without its mask, with the mask's dims beside the input's."""

    def label(call: Call) -> Labelling | None:
        inputs = tuple(tensor for tensor in call.tensors if tensor.param != "mask")
        made = plain(Call(inputs, {name: value for name, value in call.arguments.items() if name != "mask"}))
        if made is None or len(inputs) != 1 or len(call.tensors) > 2:
            return None
        dims, shape = made.operands[0], inputs[0].shape
        rows = []
        for tensor in call.tensors:
            if tensor.ndim > len(dims):
                return None
            front = len(dims) - tensor.ndim
            pairs = zip(dims[front:], tensor.shape, shape[front:], strict=True)
            rows.append(tuple(None if extent == 1 and whole != 1 else own for own, extent, whole in pairs))
        masks = {at for at, tensor in enumerate(call.tensors) if tensor.param == "mask"}
        spread = frozenset(pair for pair in singles(rows, call.tensors) if pair[0] in masks)
        # What a mask leaves is not as much on every rank.
        weighed = frozenset(label for label, fate in made.fates.items() if fate is Fate.MEAN) if masks else frozenset()
        return replace(made, operands=tuple(rows), spread=spread, weighed=weighed)

    return label


_PLAIN = {rule.op: rule.labels for rule in (*reduction.RULES, *scans.RULES)}


def _linear(op: str, params: str, law: str, labels: Labeller | None) -> OpRule:
    assert labels is not None, op
    guard, made = casts("dtype"), _masked(labels)
    return OpRule(f"masked.{op}", params, "input", law=law, static=("dtype",), guard=guard, labels=made)


def _opaque(names: str, params: str, labels: Labeller | None = None) -> tuple[OpRule, ...]:
    """``labels``  left out: those of the operator without a mask."""
    law = "combines what the mask leaves: a pending sum does not pass"
    found = {op: labels or _PLAIN[op] for op in names.split()}
    return tuple(
        OpRule(f"masked.{op}", params, law=law, source=f"torch.masked.{op}", labels=plain and _masked(plain))
        for op, plain in found.items()
    )


_REDUCED = "input dim keepdim dtype mask"

RULES = (
    _linear("sum", _REDUCED, "a sum of sums is the sum of everything", reduces(Fate.SUM)),
    _linear("mean", _REDUCED, "a sum divided by a count that is the same on every rank", reduces(Fate.MEAN, _MEAN)),
    _linear("cumsum", "input dim dtype mask", "running sums of what the mask leaves", _PLAIN["cumsum"]),
    *_opaque("prod amax amin argmax argmin logsumexp", _REDUCED),
    *_opaque("median", _REDUCED, _PLAIN["mode"]),
    *_opaque("var std", "input dim unbiased correction keepdim dtype mask"),
    *_opaque("cumprod softmax log_softmax softmin", "input dim dtype mask"),
    *_opaque("norm", "input ord dim keepdim dtype mask", norm_of("ord")),
    *_opaque("normalize", "input ord dim eps dtype mask", along(_OWN)),
    OpRule(
        "masked.logaddexp",
        "input other dtype input_mask other_mask",
        law="combines what the mask leaves: a pending sum does not pass",
        labels=pointwise,
    ),
)
