"""Element by element: operands are broadcast against each other and every dim is kept.

What changes single dims (complex numbers as pairs, masks that count elements) has its own labels in the siblings.
"""

from __future__ import annotations

from ...propagation.dim_labels import Call, Fate, Labeller, Labelling, broadcast, numbered, pointwise, singles
from .. import casting, elementwise
from ..opaque import FAMILIES

_FAMILIES = (
    "rounds",
    "compares",
    "combines bits",
    "clips",
    "has a magnitude",
    "is a power, exponential or logarithm",
    "is trigonometric or hyperbolic",
    "is a special function",
    "is an activation",
)
_RANDOM = """
    dropout torch.dropout native_dropout alpha_dropout torch.alpha_dropout rrelu bernoulli poisson binomial normal
    _standard_gamma
"""
_OTHERS = "map_ map2_ _add_relu native_dropout_backward"
_NOT = """
    cumsum masked_scatter view_as_real view_as_complex set_ copy_ fill_
    isin renorm glu prelu fake_quantize_per_channel_affine fused_moving_avg_obs_fake_quant
"""
_POINTWISE = {
    *(rule.op for module in (elementwise, casting) for rule in module.RULES),
    *(name for family in _FAMILIES for name in FAMILIES[family].split()),
    *f"{_RANDOM} {_OTHERS}".split(),
} - set(_NOT.split())


def _overwritten(call: Call) -> Labelling | None:
    """What is written is broadcast into a destination, whose own value does not matter."""
    into = call.get("input")
    if into is None or len(call.tensors) != 1:
        return None
    rows, result = broadcast([call.first.shape, into.shape])
    return Labelling((rows[0],), (result,), spread=singles(rows[:1], call.tensors))


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


def _channels_drawn(spatial: int) -> Labeller:
    """Dropout that drops whole channels, each with ``spatial`` dims; the draw is one per channel."""

    def label(call: Call) -> Labelling | None:
        training = call.get("training", call.get("train", True))
        if not training or call.get("p", 0.5) == 0:
            return pointwise(call)
        labels = numbered(call.first.ndim)
        inside = labels[2:] if call.first.ndim != spatial + 1 or spatial == 2 else labels[1:]
        why = "a channel is dropped as a whole, and every shard would draw for itself"
        return Labelling((labels,), (labels,), dict.fromkeys(inside, Fate.OPAQUE), dict.fromkeys(inside, why))

    return label


LABELS: dict[str, Labeller] = {
    **dict.fromkeys(sorted(_POINTWISE), pointwise),
    "copy_": _overwritten,
    "fill_": _overwritten,
    "masked_scatter": _masked_scatter,
    "isin": _isin,
    "prelu": _along_channels,
    "fake_quantize_per_channel_affine": _scaled_by_channel,
    "dropout1d": _channels_drawn(1),
    "dropout2d": _channels_drawn(2),
    "dropout3d": _channels_drawn(3),
    "feature_dropout": _channels_drawn(2),
    "feature_alpha_dropout": _channels_drawn(2),
    "torch.feature_alpha_dropout": _channels_drawn(2),
}
