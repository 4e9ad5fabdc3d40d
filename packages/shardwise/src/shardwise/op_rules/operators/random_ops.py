"""Operators that draw random numbers: their results are equal on every rank only if the generators are.

Dropout with equal masks is linear; in evaluation it is the identity. ``draws`` says which of the two a call is.
"""

from __future__ import annotations

from collections.abc import Callable

from ..propagation.dim_labels import Call, Fate, Labeller, Labelling, numbered, pointwise
from ..schema import Arguments, Kind, OpRule
from .scans import EXPONENTIALS, along

_ZEROED = "keeps or drops each element: linear when the mask is equal on every rank"


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


def _mixes_last(why: str, *, kept: bool) -> Labeller:
    """The last dim is mixed; ``kept``: it is in the result, too."""

    def label(call: Call) -> Labelling | None:
        labels = numbered(call.first.ndim)
        if len(call.tensors) != 1 or not (labels or kept):
            return None
        result = labels if kept else (*labels[:-1], None)
        return Labelling((labels,), (result,), dict.fromkeys(labels[-1:], Fate.OPAQUE), dict.fromkeys(labels[-1:], why))

    return label


def _drops(training: str, *, by_default: bool) -> Callable[[Arguments], bool]:
    def draws(static: Arguments) -> bool:
        return bool(static.get(training, by_default)) and static.get("p", 0.5) != 0

    return draws


def _dropout(
    op: str, labels: Labeller = pointwise, *, training: str = "training", by_default: bool = True, linear: bool = True
) -> OpRule:
    draws = _drops(training, by_default=by_default)

    def shifts(static: Arguments) -> str | None:
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
        labels=labels,
    )


def _random(names: str, params: str = "", labels: Labeller | None = None) -> tuple[OpRule, ...]:
    law = "drawn from the generator in use"
    return tuple(OpRule(name, params, kind=Kind.RANDOM, law=law, labels=labels) for name in names.split())


RULES = (
    *_random("rand randn randint randperm"),
    *_random("normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ bernoulli_", "~input"),
    *_random(
        "kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ orthogonal_ sparse_", "~tensor"
    ),
    *_random("rand_like randn_like randint_like", "~input"),
    *_random("bernoulli poisson binomial", "input prob", pointwise),
    *_random("multinomial", "input prob", _mixes_last("one draw is among the weights of all ranks", kept=False)),
    *_random("normal", "mean std", pointwise),
    *_random("_standard_gamma", "input", pointwise),
    *_random("_sample_dirichlet", "input", _mixes_last("the draws along the dim sum to one", kept=True)),
    *_random("gumbel_softmax", "logits tau", along(EXPONENTIALS)),
    # Randomised ranges: the result is an approximation that depends on the draw.
    *_random("pca_lowrank svd_lowrank lobpcg", "A"),
    _dropout("dropout"),
    *(_dropout(f"dropout{spatial}d", _channels_drawn(spatial)) for spatial in (1, 2, 3)),
    _dropout("feature_dropout", _channels_drawn(2), training="train"),
    _dropout("torch.dropout", training="train"),
    OpRule(
        "native_dropout",
        "input p train",
        law="dropout that hands out its mask too, which follows from no value: there is no one law for both",
        kind=Kind.RANDOM,
        static=("p", "train"),
        draws=_drops("train", by_default=True),
        labels=pointwise,
    ),
    OpRule(
        "native_dropout_backward",
        "grad_output mask scale",
        "grad_output",
        law="a backward pass is linear in the gradient that arrives",
        source="torch.ops.aten.native_dropout_backward",
        labels=pointwise,
    ),
    _dropout("alpha_dropout", by_default=False, linear=False),
    _dropout("feature_alpha_dropout", _channels_drawn(2), by_default=False, linear=False),
    _dropout("torch.alpha_dropout", training="train", linear=False),
    _dropout("torch.feature_alpha_dropout", _channels_drawn(2), training="train", linear=False),
    OpRule(
        "rrelu",
        "input lower upper training",
        law="a slope drawn per element in training",
        kind=Kind.RANDOM,
        static=("training",),
        draws=lambda static: bool(static.get("training", False)),
        labels=pointwise,
    ),
)
