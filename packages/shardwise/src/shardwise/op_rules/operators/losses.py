"""Losses: sums of independent parts over samples always, over classes or features sometimes.

With ``reduction="none"`` the samples' dims are kept; with ``"sum"`` the loss of a shard is a part of the whole one,
which is no question of linearity; with ``"mean"`` a shard has the mean of its own samples, whose mean over the ranks is
another number as soon as the ranks count different numbers of samples. None but ``nll_loss`` is linear in its input;
some are in the weights of their terms, or in the probabilities that they aim at.

Parameters are those of ``nn.functional``; ATen's have the reduction's number in the place of ``size_average``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, broadcast, singles
from ..schema import TORCHS, OpRule, opaque
from ..vocabulary.guards import first_of, floating, not_given, only, pending

_WHY_MEAN = (
    "the mean is over this rank's samples only: divide the summed loss (reduction='sum') by the global count of samples"
    " or tokens"
)
_WHY_CLASSES = (
    "the softmax mixes all classes: the vocab-parallel way is an all_reduce of the largest logit (op='max') and of the"
    " sum of exponentials, and of the target's logit with the other ranks at 0"
)
_WHY_PICK = "each sample picks its own class, which another rank may have"
_WHY_MARGIN = "the loss of a sample compares all of its classes"
_WHY_VECTOR = "the distance of two vectors needs all of their elements"
_WHY_CTC = "the alignment of a sample runs over all of its frames, classes and targets"
_WHY_LENGTHS = "targets in one row, or lengths that are plain numbers, do not say which sample is whose"
_BY_NUMBER = {0: "none", 1: "mean", 2: "sum"}


def _reduction(call: Call) -> str | None:
    """What is asked for, in today's words; None if that is unclear. ATen has its number in place of size_average."""
    averaged, reduced = call.get("size_average"), call.get("reduce")
    asked = averaged if type(averaged) is int else call.get("reduction", "mean")
    if type(asked) is int:
        return _BY_NUMBER.get(asked)
    if not all(flag is None or isinstance(flag, bool) for flag in (averaged, reduced)):
        return None
    if averaged is not None or reduced is not None:
        return "none" if reduced is False else "sum" if averaged is False else "mean"
    return str(asked)


def _reduced(
    operands: tuple[Dims, ...],
    samples: Dims,
    reduction: str | None,
    opaque: Mapping[Label, str] | None = None,
    *,
    weighed: bool = False,
) -> Labelling | None:
    """The labels of a loss whose parts are ``samples``; ``opaque`` labels, with their reason, are needed whole.

    ``weighed``  the mean divides by the weights of the samples, and not by their number.
    """
    opaque = opaque or {}
    fates = dict.fromkeys(opaque, Fate.OPAQUE)
    if reduction == "none":
        return Labelling(operands, (samples,), fates, opaque)
    labels = [label for label in samples if label is not None]
    if reduction == "sum":
        return Labelling(operands, ((),), fates | dict.fromkeys(labels, Fate.TOTAL), opaque)
    if reduction == "mean":
        means = dict.fromkeys(labels, Fate.MEAN)
        why = {**dict.fromkeys(labels, _WHY_MEAN), **opaque}
        return Labelling(operands, ((),), fates | means, why, weighed=frozenset(labels) if weighed else frozenset())
    return None


def _elementwise(call: Call) -> Labelling | None:
    """Every element is a sample: mse_loss and its like."""
    rows, result = broadcast([tensor.shape for tensor in call.tensors])
    weighed = any(tensor.param == "weight" for tensor in call.tensors)
    made = _reduced(tuple(rows), result, _reduction(call), weighed=weighed)
    return made and replace(made, spread=singles(rows, call.tensors))


def _divergence(call: Call) -> Labelling | None:
    """kl_div: element by element; ``"batchmean"`` divides the sum by the size of the first dim."""
    if call.get("reduction") != "batchmean":
        return _elementwise(call)
    rows, result = broadcast([tensor.shape for tensor in call.tensors])
    summed = _reduced(tuple(rows), result, "sum")
    first = rows[0][0] if rows[0] else None
    if summed is None or first is None:
        return summed
    return Labelling(summed.operands, summed.results, {**summed.fates, first: Fate.MEAN}, {first: _WHY_MEAN})


def _gaussian(call: Call) -> Labelling | None:
    """gaussian_nll_loss: the variance is one per element, or one per row, with or without the last dim."""
    first, variance = call.first, call.get("var")
    shapes = [tensor.shape for tensor in call.tensors]
    lacks_last = getattr(variance, "shape", None) == first.shape[:-1] and first.ndim > 0
    if lacks_last:
        shapes[-1] = (*shapes[-1], 1)
    rows, result = broadcast(shapes)
    if lacks_last:
        rows[-1] = rows[-1][:-1]
    return _reduced(tuple(rows), result, _reduction(call))


def _classified(why: str) -> Labeller:
    """Losses of scores ``[n, c, ...]``, or ``[c]``, against class indices ``[n, ...]`` or as many probabilities."""

    def label(call: Call) -> Labelling | None:
        scores: Dims = tuple(f"d{at}" for at in range(call.first.ndim))
        if len(scores) > 1:
            scores = (scores[0], "c", *scores[2:])
        else:
            scores = ("c",)
        samples = tuple(dim for dim in scores if dim != "c")
        rows: list[Dims] = []
        for at, tensor in enumerate(call.tensors):
            if at == 0 or (at == 1 and tensor.ndim == len(scores)):
                rows.append(scores)
            elif tensor.param == "target":
                rows.append(samples)
            else:
                rows.append(("c",))
        if any(len(row) != tensor.ndim for row, tensor in zip(rows, call.tensors, strict=True)):
            return None
        # Samples that are ignored, or weigh more than others, are not as many on every rank.
        weighed = any(tensor.param == "weight" for tensor in call.tensors) or call.get("ignore_index", -100) != -100
        return _reduced(tuple(rows), samples, _reduction(call), {"c": why}, weighed=weighed)

    return label


def _rows_of(why: str, vectors: int) -> Labeller:
    """Losses of ``vectors`` operands ``[n, e]`` or ``[e]`` with a row per sample; further operands are ``[n]``."""

    def label(call: Call) -> Labelling | None:
        if any(callable(value) for value in call.arguments.values()):
            return None  # a distance of the program's own may do anything
        lead, _ = broadcast(
            [t.shape[:-1] if at < vectors else t.shape for at, t in enumerate(call.tensors) if t.param != "weight"]
        )
        rows: list[Dims] = []
        for at, tensor in enumerate(call.tensors):
            if tensor.param == "weight":
                rows.append(("e",) * tensor.ndim)
            else:
                rows.append((*lead[at], "e") if at < vectors else lead[at])
        samples = max(lead, key=len, default=())
        return _reduced(tuple(rows), samples, _reduction(call), {"e": why})

    return label


def _labelled_softly(call: Call) -> Labelling | None:
    """multilabel_soft_margin_loss: a mean over the classes of each sample, then the reduction over samples."""
    made = _rows_of("", 2)(call)
    if made is None:
        return None
    fates = {**made.fates, "e": Fate.MEAN}
    why = {**made.why, "e": "the loss of a sample is the mean over all of its classes"}
    return Labelling(made.operands, made.results, fates, why)


def _temporal(call: Call) -> Labelling | None:
    """ctc_loss: log probabilities ``[t, n, c]`` or ``[t, c]``, targets ``[n, s]`` or in one row, lengths ``[n]``."""
    if call.first.ndim < 3:
        operands = tuple(tuple(f"x{at}.{dim}" for dim in range(t.ndim)) for at, t in enumerate(call.tensors))
        every = {label: _WHY_CTC for dims in operands for label in dims}
        return Labelling(operands, ((),), dict.fromkeys(every, Fate.OPAQUE), every)
    per_sample = len(call.tensors) == 4 and call.tensors[1].ndim == 2
    targets: Dims = ("n", "s") if call.tensors[1].ndim == 2 else ("s",)
    rows: tuple[Dims, ...] = (("t", "n", "c"), targets, *((("n",),) * (len(call.tensors) - 2)))
    opaque = dict.fromkeys(("t", "c", "s"), _WHY_CTC)
    if not per_sample:
        return _reduced(rows, (None,), _reduction(call), {**opaque, "n": _WHY_LENGTHS})
    return _reduced(rows, ("n",), _reduction(call), opaque)


def _projected(call: Call) -> Labelling | None:
    """linear_cross_entropy: input ``[..., k]``, weight ``[c, k]``, bias ``[c]``, then the loss over classes.

    With ``[c, *e, k]`` there is a loss for each element along ``e``, too.
    """
    weight = next((tensor for tensor in call.tensors if tensor.param == "linear_weight"), None)
    each: Dims = tuple(f"e{at}" for at in range(0 if weight is None else weight.ndim - 2))
    named: dict[str, Dims] = {"linear_weight": ("c", *each, "k"), "linear_bias": ("c", *each), "weight": ("c",)}
    batch: Dims = tuple(f"d{at}" for at in range(call.first.ndim - 1))
    samples = (*batch, *each)
    rows = []
    for tensor in call.tensors:
        if tensor.param == "input":
            rows.append((*batch, "k"))
        elif tensor.param == "target":
            rows.append(samples if tensor.ndim == len(samples) else (*batch, "c", *each))
        else:
            rows.append(named[tensor.param])
    if any(len(row) != tensor.ndim for row, tensor in zip(rows, call.tensors, strict=True)):
        return None
    why = {"c": _WHY_CLASSES, "k": "the logits are sums over all features, and the softmax is not linear in them"}
    return _reduced(tuple(rows), samples, _reduction(call), why)


_PENDING_TARGETS = first_of(
    only("label_smoothing", 0, 0.0, reason="adds the same to the targets of every rank", default=0.0),
    pending("weight", floating("divides by the weights of the classes that are aimed at", "target")),
    pending("target", floating("class numbers are no terms of a sum", "target")),
)
_BY_CLASS_WEIGHTS = pending(
    "weight",
    only("reduction", "none", "sum", reason="divides by the weights"),
    not_given("size_average", "may divide by the weights"),
    not_given("reduce", "may divide by the weights"),
)


def _weighted(names: str, labels: Labeller) -> tuple[OpRule, ...]:
    law = "is a loss: linear in nothing but the weights of its terms"
    return tuple(
        OpRule(op, linear="weight", law=law, source=f"torch.nn.functional.{op}", labels=labels) for op in names.split()
    )


def _aimed(op: str, labels: Labeller, params: str = TORCHS) -> OpRule:
    return OpRule(
        op,
        params,
        "target weight",
        law="is a loss: linear in nothing but probabilities to aim at and the weights of classes",
        source=f"torch.nn.functional.{op}",
        static=("label_smoothing",),
        guard=_PENDING_TARGETS,
        labels=labels,
    )


_LOSS = "is a loss"

RULES = (
    *opaque(
        _LOSS,
        "l1_loss mse_loss smooth_l1_loss huber_loss poisson_nll_loss hinge_embedding_loss soft_margin_loss"
        " margin_ranking_loss",
        labels=_elementwise,
    ),
    *opaque(_LOSS, "kl_div", labels=_divergence),
    *opaque(_LOSS, "gaussian_nll_loss", labels=_gaussian),
    *opaque(_LOSS, "cosine_embedding_loss", labels=_rows_of(_WHY_VECTOR, 2)),
    *opaque(_LOSS, "triplet_margin_loss triplet_margin_with_distance_loss", labels=_rows_of(_WHY_VECTOR, 3)),
    *opaque(_LOSS, "multilabel_margin_loss", labels=_rows_of(_WHY_MARGIN, 2)),
    *opaque(_LOSS, "ctc_loss", labels=_temporal),
    *opaque(
        _LOSS,
        "cross_entropy_loss",
        "input target weight reduction ignore_index label_smoothing",
        labels=_classified(_WHY_CLASSES),
    ),
    *_weighted("binary_cross_entropy binary_cross_entropy_with_logits", _elementwise),
    *_weighted("multi_margin_loss", _classified(_WHY_MARGIN)),
    *_weighted("multilabel_soft_margin_loss", _labelled_softly),
    _aimed("cross_entropy", _classified(_WHY_CLASSES)),
    _aimed("linear_cross_entropy", _projected),
    # The weighted mean divides by the weights of the targets, which the input does not enter.
    OpRule(
        "nll_loss",
        linear="input weight",
        law="picks one element per target and sums them with weights",
        source="torch.nn.functional.nll_loss",
        static=("size_average", "reduce", "reduction"),
        guard=_BY_CLASS_WEIGHTS,
        spellings=("nll_loss_nd", "nll_loss2d"),
        labels=_classified(_WHY_PICK),
    ),
)
