"""Along which dims do normalisations take their statistics? Those are needed whole, the others are kept.

Weights, biases and running statistics go with the dims they scale, by parameter name.
"""

from __future__ import annotations

from dataclasses import replace

from ...propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, numbered
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
    return _normalised(call, labels, labels[1:2], list(labels[1:]), (labels,)) if len(labels) > 1 else None


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
    per_group = (made.operands[0][0], None)
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


LABELS: dict[str, Labeller] = {
    "layer_norm": _last_dims(),
    "rms_norm": _last_dims(),
    "native_layer_norm": _last_dims(statistics=2),
    "_fused_rms_norm": _last_dims(statistics=1),
    "group_norm": _groups,
    "native_group_norm": _group_kernel,
    "_weight_norm": _first_result(_weights),
    "_weight_norm_interface": _weights,
    "norm_except_dim": _weights,
    "batch_norm": _batch,
    "torch.batch_norm": _batch,
    "native_batch_norm": _batch_kernel,
    "_native_batch_norm_legit": _batch_kernel,
    "instance_norm": _instances,
    "torch.instance_norm": _instances,
    "local_response_norm": _neighbouring_channels,
    "normalize": along(_OWN, default=1),
}
