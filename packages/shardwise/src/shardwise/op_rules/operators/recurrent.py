"""Recurrent networks and sequences of different lengths: the batch is kept.

Features are mixed by a network's weights, and time runs in order. Sequences that are padded or reduced one by one are
needed with all of their steps, and keep their features.
"""

from __future__ import annotations

from ..propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, numbered
from ..schema import Arguments, Kind, OpRule, opaque
from ..vocabulary.guards import only
from ..vocabulary.labellers import tensor_at

_WHY = "gates mix all features"
_TIME = "each step needs the one before it"
_STEPS = "the longest sequence is known only where all steps of all sequences are"
_SEGMENTS = "where a segment begins depends on the lengths of all that come before it"


def _cell(results: int) -> Labeller:
    """Input, states and parameters of one step; the batch is the first dim, if there is one."""

    def label(call: Call) -> Labelling | None:
        rank = call.first.ndim
        states = results + 1  # the input comes first
        if rank not in (1, 2) or any(tensor.ndim != rank for tensor in call.tensors[:states]):
            return None
        batch: Dims = ("batch",) * (rank - 1)
        data = tuple((*batch, f"features{at}") for at in range(states))
        weights = tuple(numbered(tensor.ndim, f"weight{at}.") for at, tensor in enumerate(call.tensors[states:]))
        return _labelled((*data, *weights), ((*batch, None),) * results)

    return label


def _labelled(operands: tuple[Dims, ...], results: tuple[Dims, ...]) -> Labelling:
    mixed = [label for row in operands for label in row if label is not None and label != "batch"]
    why = {label: _TIME if label == "time" else _WHY for label in mixed}
    return Labelling(operands, results, dict.fromkeys(mixed, Fate.OPAQUE), why)


def _layers(states: int) -> Labeller:
    """All steps and layers: the output of every step and the last states, which have a leading dim for the layers."""

    def label(call: Call) -> Labelling | None:
        first = call.get("args[8]", call.get("batch_first", False))
        if call.first.ndim != 3 or not isinstance(first, bool) or len(call.tensors) < states + 1:
            return None  # packed sequences have no batch dim
        if any(tensor.ndim != 3 for tensor in call.tensors[1 : states + 1]):
            return None
        order: Dims = ("batch", "time") if first else ("time", "batch")
        data = ((*order, "features"), *((f"layer{at}", "batch", f"state{at}") for at in range(states)))
        weights = tuple(numbered(t.ndim, f"weight{at}.") for at, t in enumerate(call.tensors[states + 1 :]))
        last: Dims = (None, "batch", None)
        return _labelled((*data, *weights), ((*order, None), *(last,) * states))

    return label


def _padded(call: Call) -> Labelling | None:
    """A list of ``l *f``: the batch is the list itself."""
    if not call.tensors or any(tensor.ndim != call.first.ndim for tensor in call.tensors):
        return None
    features = numbered(call.first.ndim)[1:]
    row: Dims = ("l", *features)
    return Labelling((row,) * len(call.tensors), ((None, None, *features),), {"l": Fate.OPAQUE}, {"l": _STEPS})


def _segments(call: Call) -> Labelling | None:
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


def _recurrent_draws(static: Arguments) -> bool:
    """The packed-sequence overload has one more operand in front, so its later arguments stand one place further."""
    shifted = isinstance(static.get("num_layers"), bool)
    dropout = static.get("train" if shifted else "dropout", 0.0)
    train = static.get("bidirectional" if shifted else "train", False)
    return bool(dropout) and bool(train)


def _network(op: str, states: int) -> OpRule:
    return OpRule(
        op,
        "input hx params has_biases num_layers dropout train bidirectional",
        law="gates are non-linear; dropout between layers in training",
        kind=Kind.RANDOM,
        static=("num_layers", "dropout", "train", "bidirectional"),
        draws=_recurrent_draws,
        labels=_layers(states),
    )


_CELL, _PACKS = "is a recurrent cell", "packs sequences"

RULES = (
    _network("lstm", 2),
    *(_network(op, 1) for op in ("gru", "rnn_tanh", "rnn_relu")),
    *opaque(_CELL, "lstm_cell", labels=_cell(2)),
    *opaque(_CELL, "gru_cell rnn_tanh_cell rnn_relu_cell", labels=_cell(1)),
    *opaque(_PACKS, "pad_sequence", "sequences batch_first padding_value", labels=_padded),
    # They lay sequences out in a way that no dim names.
    *opaque(_PACKS, "_pack_padded_sequence _pad_packed_sequence to_padded_tensor"),
    OpRule(
        "segment_reduce",
        linear="data + initial",
        law="sums or means over segments; an initial value is added once per rank",
        static=("reduce",),
        guard=only("reduce", "sum", "mean", reason="is not a sum"),
        labels=_segments,
    ),
)
