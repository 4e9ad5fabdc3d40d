"""Element by element: operands are broadcast against each other and every dim is kept.

Linear are sums, products with one pending factor, and choices by a mask. What torch's metadata tags as pointwise, and
no family has a rule for, is linear in nothing.
"""

from __future__ import annotations

from collections.abc import Container

from .. import derived
from ..propagation.dim_labels import Call, Fate, Labelling, numbered, pointwise
from ..schema import TORCHS, Arguments, Decided, OpRule, opaque
from ..vocabulary.guards import only
from ..vocabulary.monotone import elu_falls, softplus_falls
from .indexing import KEEP

_DIFFERENCE = "a difference of sums is the sum of the differences"
_CONSTANT = "a product with a constant"
_MASK = "a mask that is equal on every rank picks from both pending sums alike"
_OVER_THE_REALS = "linear over the reals"
_CONJUGATE = "linear over the reals: the conjugate of a sum is the sum of the conjugates"
_UNROUNDED = only("rounding_mode", None, reason="rounds each rank's quotient")


def _chosen(call: Call) -> Labelling:
    """Of a condition alone, the positions where it holds: counted from 0 on every rank."""
    if call.get("input") is not None or call.get("other") is not None:
        return pointwise(call)
    labels = numbered(call.first.ndim)
    why = "its result is the positions of elements, which each rank would count from 0"
    return Labelling((labels,), ((),), dict.fromkeys(labels, Fate.OPAQUE), dict.fromkeys(labels, why))


def _masked_scatter(call: Call) -> Labelling | None:
    """The source is used up in order, so where an element goes depends on the whole mask."""
    labels = [numbered(tensor.ndim, f"t{at}.") for at, tensor in enumerate(call.tensors)]
    every = [label for row in labels for label in row]
    return Labelling(tuple(labels), (labels[0],), dict.fromkeys(every, Fate.OPAQUE))


def _isin(call: Call) -> Labelling | None:
    """Every element is looked up in the whole of the test elements."""
    labels = tuple(numbered(tensor.ndim, f"{tensor.param}.") for tensor in call.tensors)
    kept = next((row for row, t in zip(labels, call.tensors, strict=True) if t.param == "elements"), ())
    tests = {label for row in labels if row is not kept for label in row}
    return Labelling(labels, (kept,), dict.fromkeys(tests, Fate.OPAQUE), dict.fromkeys(tests, "every one is compared"))


def _along_channels(call: Call) -> Labelling | None:
    """prelu: one weight for all, or one per channel, which is the second dim."""
    if len(call.tensors) != 2:
        return None
    labels = numbered(call.first.ndim)
    weight = call.tensors[1]
    own = tuple(None if weight.shape[0] == 1 else "i1" for _ in range(weight.ndim))
    return Labelling((labels, own), (labels,))


def _scaled_by_channel(call: Call) -> Labelling | None:
    """Quantised along the dim ``axis``, with a scale and a zero point for each index."""
    axis = call.get("axis")
    if not isinstance(axis, int) or not 0 <= axis < call.first.ndim:
        return None
    labels = numbered(call.first.ndim)
    return Labelling((labels, *((labels[axis],) * tensor.ndim for tensor in call.tensors[1:])), (labels,))


def _true_at(given: Arguments) -> Decided | None:
    """``where(condition)`` alone gives the positions at which it holds."""
    return (
        None if len(given) > 1 else Decided((given.get("condition"),), (0,), "one entry for each element found", KEEP)
    )


def _linear(op: str, linear: str, law: str, formula: str = "", *spellings: str, params: str = TORCHS) -> OpRule:
    source = f"torch.{op}: {formula}" if formula else ""
    return OpRule(op, params, linear, law=law, source=source, spellings=spellings, labels=pointwise)


def _quotient(op: str, numerator: str, law: str, source: str, *spellings: str) -> OpRule:
    return OpRule(
        op,
        "input other rounding_mode",
        numerator,
        law=law,
        source=source,
        static=("rounding_mode",),
        guard=_UNROUNDED,
        spellings=spellings,
        labels=pointwise,
    )


RULES = (
    _linear("add", "input + other alpha", "a sum of sums is the sum of everything", "input + alpha * other"),
    _linear("sub", "input + other alpha", _DIFFERENCE, "input - alpha * other"),
    _linear("rsub", "input alpha + other", _DIFFERENCE, "other - alpha * input"),
    _linear("neg", "input", "-(a + b) = -a - b"),
    OpRule("positive", linear="input", law="the identity", view=False, labels=pointwise),
    _linear("rad2deg", "input", _CONSTANT, "input * 180 / pi"),
    _linear("deg2rad", "input", _CONSTANT, "input * pi / 180"),
    _linear("mul", "input other", "(a + b) c = ac + bc: one factor may be a pending sum"),
    _quotient(
        "div",
        "input",
        "(a + b) / c = a/c + b/c: the numerator may be a pending sum, the divisor may not",
        "torch.div: input / other",
        "true_divide",
    ),
    _quotient(
        "rdiv",
        "other",
        "c / (a + b) is not a sum: only the numerator, here the second operand, may be a pending sum",
        "Tensor.__rtruediv__: other / input",
    ),
    _linear("ldexp", "input", "a product with 2**other", "input * 2 ** other"),
    _linear("xlogy", "input", "a product with log(other)", "input * log(other)"),
    _linear("special.xlog1py", "input", "a product with log1p(other)", "input * log1p(other)"),
    _linear(
        "addcmul",
        "input + value tensor1 tensor2",
        "a sum of two terms; both must be pending, the second through exactly one factor",
        "input + value * tensor1 * tensor2",
    ),
    _linear(
        "addcdiv",
        "input + value tensor1",
        "a sum of two terms; both must be pending, the second through its numerator",
        "input + value * tensor1 / tensor2",
    ),
    _linear(
        "lerp",
        "input + weight end + weight input",
        "both ends pending and the weight not",
        "input + weight * (end - input)",
    ),
    OpRule(
        "torch.where",
        "condition input other",
        "input + other",
        law=_MASK,
        source="torch.where",
        lengths=_true_at,
        labels=_chosen,
    ),
    # The method's order of operands: ``x.where(condition, other)``.
    OpRule(
        "where",
        "input condition other",
        "input + other",
        law=_MASK,
        source="Tensor.where(condition, other)",
        labels=pointwise,
    ),
    _linear(
        "masked_fill",
        "input + value",
        "keeps or replaces elements by a mask equal on every rank; a filled-in zero adds nothing",
    ),
    OpRule(
        "masked_scatter",
        linear="input + source",
        law="keeps or replaces elements by a mask equal on every rank",
        labels=_masked_scatter,
    ),
    _linear("real", "input", _OVER_THE_REALS),
    _linear("imag", "input", _OVER_THE_REALS),
    _linear("conj", "input", _CONJUGATE, "", "resolve_conj", "resolve_neg", "_conj", "_neg_view"),
    _linear("conj_physical", "input", _CONJUGATE, "", "_conj_physical", "_conj_copy", "_neg_view_copy"),
    _linear("complex", "real + imag", "jointly linear: both parts pending", "real + imag * 1j"),
    OpRule(
        "elu",
        "input alpha scale input_scale",  # aten's; in nn.functional the third is inplace, true or false
        law="is not linear: a pending sum does not pass",
        static=("alpha", "scale", "input_scale"),
        guard=elu_falls,
        labels=pointwise,
    ),
    OpRule(
        "softplus",
        law="is not linear: a pending sum does not pass",
        static=("threshold",),
        guard=softplus_falls,
        labels=pointwise,
    ),
    # Pointwise without torch's tag.
    *opaque(
        "is not linear",
        "_threshold fake_quantize_per_tensor_affine floor_divide hardswish isclose isreal log_sigmoid"
        " log_sigmoid_forward logsigmoid polar rfloor_divide rpow rremainder softsign special.ndtr special.polygamma"
        " tanhshrink unravel_index",
        labels=pointwise,
    ),
    *opaque("calls a Python function on each element", "map_ map2_", labels=pointwise),
    OpRule("isin", "elements test_elements", law="compares: a pending sum does not pass", labels=_isin),
    OpRule("prelu", law="is not linear: a pending sum does not pass", labels=_along_channels),
    OpRule(
        "fake_quantize_per_channel_affine",
        "input scale zero_point axis",
        law="rounds: a pending sum does not pass",
        labels=_scaled_by_channel,
    ),
)


def tagged(known: Container[str]) -> tuple[OpRule, ...]:
    """Rules for what torch tags as pointwise and ``known`` has no rule for."""
    names = " ".join(sorted(name for name in derived.POINTWISE if name not in known))
    return opaque("is not linear", names, labels=pointwise)
