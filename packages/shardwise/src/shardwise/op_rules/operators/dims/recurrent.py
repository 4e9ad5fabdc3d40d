"""Which dims does a recurrent network keep? The batch; features are mixed by its weights, and time runs in order."""

from __future__ import annotations

from ...propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, numbered

_WHY = "gates mix all features"
_TIME = "each step needs the one before it"


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


LABELS: dict[str, Labeller] = {
    "lstm_cell": _cell(2),
    **dict.fromkeys(["gru_cell", "rnn_tanh_cell", "rnn_relu_cell"], _cell(1)),
    "lstm": _layers(2),
    **dict.fromkeys(["gru", "rnn_tanh", "rnn_relu"], _layers(1)),
}
