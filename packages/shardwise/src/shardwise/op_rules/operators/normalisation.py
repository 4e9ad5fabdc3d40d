"""Normalisations: the dims along which they take their statistics are needed whole, the others are kept.

Weights, biases and running statistics go with the dims they scale, by parameter name. They are non-linear in their
input, affine in weight and bias. A missing weight means one, which no rank can share out: then a pending bias alone is
refused.
"""

from __future__ import annotations

from dataclasses import replace

from ..propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, numbered
from ..schema import TORCHS, Guard, OpRule, Result, opaque
from ..vocabulary.guards import first_of, needs, only, pending
from .scans import along

_OWN = "the statistics are taken over this rank's elements only"


def _normalised(call: Call, labels: Dims, small: Dims, mixed: list[Label], results: tuple[Dims, ...]) -> Labelling:
    """The input has ``labels``, every other operand ``small``."""
    operands = tuple(labels if at == 0 else small for at in range(len(call.tensors)))
    return Labelling(operands, results, dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, _OWN))


def _last_dims(statistics: int = 0) -> Labeller:
    """layer_norm and rms_norm: over the last dims; the kernels also return their ``statistics``, one per row."""

    def label(call: Call) -> Labelling | None:
        shape = call.get("normalized_shape")
        count = 1 if isinstance(shape, int) else len(shape) if shape is not None else 0
        if not 0 < count <= call.first.ndim or any(tensor.ndim != count for tensor in call.tensors[1:]):
            return None
        labels = numbered(call.first.ndim)
        per_row = (*labels[:-count], *(None,) * count)
        return _normalised(call, labels, labels[-count:], list(labels[-count:]), (labels, *(per_row,) * statistics))

    return label


def _groups(call: Call) -> Labelling | None:
    """group_norm: over groups of channels and everything inside; samples are independent."""
    labels = numbered(call.first.ndim)
    if len(labels) < 2:
        return None
    if call.is_shared("num_groups") or call.is_shared("group"):  # a rank has groups of its own, and these are whole
        made = _normalised(call, labels, labels[1:2], list(labels[2:]), (labels,))
        return replace(made, even=frozenset(labels[1:2]))
    return _normalised(call, labels, labels[1:2], list(labels[1:]), (labels,))


def _batch(call: Call) -> Labelling | None:
    """batch_norm: in training over everything but the channels, in evaluation with statistics that are given."""
    labels = numbered(call.first.ndim)
    if len(labels) < 2:
        return None
    given = {tensor.param for tensor in call.tensors}
    fixed = not call.get("training", False) and {"running_mean", "running_var"} <= given
    mixed = [] if fixed else [labels[0], *labels[2:]]
    return _normalised(call, labels, labels[1:2], mixed, (labels,))


def _batch_kernel(call: Call) -> Labelling | None:
    """The kernel in training also returns mean and deviation of each channel."""
    if not call.get("training", False) or call.first.ndim < 2:
        return None
    labels = numbered(call.first.ndim)
    results: tuple[Dims, ...] = (labels, labels[1:2], labels[1:2])
    return _normalised(call, labels, labels[1:2], [labels[0], *labels[2:]], results)


def _instances(call: Call) -> Labelling | None:
    """instance_norm: over what is inside a channel of a sample; running statistics average over the samples."""
    labels = numbered(call.first.ndim)
    if len(labels) < 2:
        return None
    if not call.get("use_input_stats", True):
        return _normalised(call, labels, labels[1:2], [], (labels,))
    averaged = any(tensor.param.startswith("running") for tensor in call.tensors)
    mixed = list(labels[2:]) + ([labels[0]] if averaged else [])
    return _normalised(call, labels, labels[1:2], mixed, (labels,))


def _group_kernel(call: Call) -> Labelling | None:
    """The kernel of group_norm also returns mean and deviation of each sample's groups."""
    made = _groups(call)
    if made is None:
        return None
    channels = made.operands[0][1]
    per_group = (made.operands[0][0], channels if made.even else None)
    return replace(made, results=(*made.results, per_group, per_group))


def _weights(call: Call) -> Labelling | None:
    """weight_norm: slices along the dim are scaled to the length that a second operand gives."""
    labels = numbered(call.first.ndim)
    dim = call.get("dim", 0)
    if not isinstance(dim, int) or not -1 <= dim < len(labels):
        return None
    kept = labels[dim] if dim >= 0 else None  # -1 stands for the norm of everything
    lengths = tuple(label if label == kept else None for label in labels)
    operands = (labels, *(lengths[: tensor.ndim] for tensor in call.tensors[1:]))
    mixed = [label for label in labels if label != kept]
    fates, why = dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, _OWN)
    return Labelling(operands, (labels, lengths) if call.get("g") else (lengths,), fates, why)


def _first_result(labeller: Labeller) -> Labeller:
    def label(call: Call) -> Labelling | None:
        made = labeller(call)
        return None if made is None else replace(made, results=made.results[:1])

    return label


def _neighbouring_channels(call: Call) -> Labelling | None:
    labels = numbered(call.first.ndim)
    return _normalised(call, labels, (), list(labels[1:2]), (labels,))


_AFFINE = "the normalised input times weight plus bias; the input itself is divided by its own norm"
_ONE = "without a weight the normalised input is added once per rank"
_OWN_STATISTICS = "normalises by the input's own statistics"
_NEEDS_WEIGHT = needs("weight", "bias", _ONE)
# With fixed statistics a batch norm is (input - mean) * weight / deviation + bias; else, in weight and bias alone.
_FIXED = "input weight + running_mean weight + bias"


def _needs_fixed(given: Guard) -> Guard:
    """``given`` says that the statistics are not fixed."""
    return first_of(*(pending(name, given) for name in ("input", "running_mean")))


_EVALUATION = _needs_fixed(only("training", False, reason=_OWN_STATISTICS, default=False))
_RUNNING = _needs_fixed(only("use_input_stats", False, reason=_OWN_STATISTICS, default=True))


def _normalises(
    op: str,
    linear: str,
    labels: Labeller,
    *,
    params: str = TORCHS,
    static: str = "",
    guard: Guard | None = None,
    statistics: int = 0,
) -> OpRule:
    """``statistics``: results beside the first one, which follow from the input alone."""
    return OpRule(
        op,
        params,
        linear,
        (Result(of="input"),) * statistics,
        law=_AFFINE,
        static=tuple(static.split()),
        guard=guard,
        labels=labels,
    )


_BY_ITSELF = "normalises by its own statistics"
_BATCH = "input weight bias running_mean running_var training"

RULES = (
    _normalises("layer_norm", "weight + bias", _last_dims(), guard=_NEEDS_WEIGHT),
    _normalises("native_layer_norm", "weight + bias", _last_dims(statistics=2), guard=_NEEDS_WEIGHT, statistics=2),
    _normalises("group_norm", "weight + bias", _groups, guard=_NEEDS_WEIGHT),
    _normalises("native_group_norm", "weight + bias", _group_kernel, guard=_NEEDS_WEIGHT, statistics=2),
    _normalises("rms_norm", "weight", _last_dims()),
    _normalises(
        "_fused_rms_norm",
        "weight",
        _last_dims(statistics=1),
        params="input normalized_shape weight eps",
        statistics=1,
    ),
    _normalises("batch_norm", _FIXED, _batch, static="training", guard=_EVALUATION),
    _normalises("torch.batch_norm", _FIXED, _batch, static="training", guard=_EVALUATION),
    _normalises("instance_norm", _FIXED, _instances, static="use_input_stats", guard=_RUNNING),
    _normalises("torch.instance_norm", _FIXED, _instances, static="use_input_stats", guard=_RUNNING),
    *opaque(_BY_ITSELF, "native_batch_norm _native_batch_norm_legit", _BATCH, labels=_batch_kernel),
    *opaque(_BY_ITSELF, "local_response_norm", labels=_neighbouring_channels),
    *opaque(_BY_ITSELF, "normalize", "input p dim eps", labels=along(_OWN, default=1)),
    *opaque(_BY_ITSELF, "_weight_norm", "v g dim", labels=_first_result(_weights)),
    *opaque(_BY_ITSELF, "_weight_norm_interface", "v g dim", labels=_weights),
    *opaque(_BY_ITSELF, "norm_except_dim", "v pow dim", labels=_weights),
    # Synchronised batch norm calls these, and communicates between them.
    *opaque(
        _BY_ITSELF,
        "batch_norm_stats batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts"
        " batch_norm_update_stats batch_norm_backward_elemt batch_norm_backward_reduce",
    ),
)
