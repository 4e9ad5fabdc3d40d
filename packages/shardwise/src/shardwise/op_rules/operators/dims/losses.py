"""Along which dims is a loss a sum of independent parts? Over samples always, over classes or features sometimes.

With ``reduction="none"`` the samples' dims are kept; with ``"sum"`` the loss of a shard is a part of the whole one,
which is no question of linearity; with ``"mean"`` a shard has the mean of its own samples, whose mean over the ranks is
another number as soon as the ranks count different numbers of samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, broadcast, singles

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
) -> Labelling | None:
    """The labels of a loss whose parts are ``samples``; ``opaque`` labels, with their reason, are needed whole."""
    opaque = opaque or {}
    fates = dict.fromkeys(opaque, Fate.OPAQUE)
    if reduction == "none":
        return Labelling(operands, (samples,), fates, opaque)
    labels = [label for label in samples if label is not None]
    if reduction == "sum":
        return Labelling(operands, ((),), fates | dict.fromkeys(labels, Fate.TOTAL), opaque)
    if reduction == "mean":
        means = dict.fromkeys(labels, Fate.MEAN)
        return Labelling(operands, ((),), fates | means, {**dict.fromkeys(labels, _WHY_MEAN), **opaque})
    return None


def elementwise(call: Call) -> Labelling | None:
    """Every element is a sample: mse_loss and its like."""
    rows, result = broadcast([tensor.shape for tensor in call.tensors])
    made = _reduced(tuple(rows), result, _reduction(call))
    return made and replace(made, spread=singles(rows, call.tensors))


def divergence(call: Call) -> Labelling | None:
    """kl_div: element by element; ``"batchmean"`` divides the sum by the size of the first dim."""
    if call.get("reduction") != "batchmean":
        return elementwise(call)
    rows, result = broadcast([tensor.shape for tensor in call.tensors])
    summed = _reduced(tuple(rows), result, "sum")
    first = rows[0][0] if rows[0] else None
    if summed is None or first is None:
        return summed
    return Labelling(summed.operands, summed.results, {**summed.fates, first: Fate.MEAN}, {first: _WHY_MEAN})


def gaussian(call: Call) -> Labelling | None:
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


def classified(why: str) -> Labeller:
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
        return _reduced(tuple(rows), samples, _reduction(call), {"c": why})

    return label


def rows_of(why: str, vectors: int) -> Labeller:
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


def labelled_softly(call: Call) -> Labelling | None:
    """multilabel_soft_margin_loss: a mean over the classes of each sample, then the reduction over samples."""
    made = rows_of("", 2)(call)
    if made is None:
        return None
    fates = {**made.fates, "e": Fate.MEAN}
    why = {**made.why, "e": "the loss of a sample is the mean over all of its classes"}
    return Labelling(made.operands, made.results, fates, why)


def temporal(call: Call) -> Labelling | None:
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


def projected(call: Call) -> Labelling | None:
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


_ELEMENTWISE = """
    l1_loss mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits poisson_nll_loss
    hinge_embedding_loss soft_margin_loss margin_ranking_loss
"""

LABELS: dict[str, Labeller] = {
    **dict.fromkeys(_ELEMENTWISE.split(), elementwise),
    "kl_div": divergence,
    "gaussian_nll_loss": gaussian,
    "cross_entropy": classified(_WHY_CLASSES),
    "cross_entropy_loss": classified(_WHY_CLASSES),
    "nll_loss": classified(_WHY_PICK),
    "linear_cross_entropy": projected,
    "multi_margin_loss": classified(_WHY_MARGIN),
    "multilabel_margin_loss": rows_of(_WHY_MARGIN, 2),
    "multilabel_soft_margin_loss": labelled_softly,
    "cosine_embedding_loss": rows_of(_WHY_VECTOR, 2),
    "triplet_margin_loss": rows_of(_WHY_VECTOR, 3),
    "triplet_margin_with_distance_loss": rows_of(_WHY_VECTOR, 3),
    "ctc_loss": temporal,
}
