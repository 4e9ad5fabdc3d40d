"""Sequences of different lengths, padded or reduced one by one: their steps are needed whole, features are kept."""

from __future__ import annotations

from ...propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, numbered
from ..roles import tensor_at

_STEPS = "the longest sequence is known only where all steps of all sequences are"
_SEGMENTS = "where a segment begins depends on the lengths of all that come before it"


def _padded(call: Call) -> Labelling | None:
    """A list of ``l *f``: the batch is the list itself."""
    if not call.tensors or any(tensor.ndim != call.first.ndim for tensor in call.tensors):
        return None
    features = numbered(call.first.ndim)[1:]
    row: Dims = ("l", *features)
    return Labelling((row,) * len(call.tensors), ((None, None, *features),), {"l": Fate.OPAQUE}, {"l": _STEPS})


def _reduced(call: Call) -> Labelling | None:
    """``*b l *f`` with the lengths ``*b s`` of segments, or with where they begin."""
    data = tensor_at(call, "data")
    axis = call.get("axis", 0)
    if data is None or not 0 <= axis < data.ndim or tensor_at(call, "indices") is not None:
        return None
    labels = numbered(data.ndim)
    segments: Dims = (*labels[:axis], "s")
    rows = tuple(labels if tensor is data else segments for tensor in call.tensors)
    if any(len(row) != tensor.ndim for row, tensor in zip(rows, call.tensors, strict=True)):
        return None
    mixed = (labels[axis], "s")
    result = (*segments, *labels[axis + 1 :])
    return Labelling(rows, (result,), dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, _SEGMENTS))


LABELS: dict[str, Labeller] = {"pad_sequence": _padded, "segment_reduce": _reduced}
