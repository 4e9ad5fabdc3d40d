"""Reductions and scans of what a mask leaves: the mask is broadcast to the input and has its dims."""

from __future__ import annotations

from dataclasses import replace

from ...propagation.dim_labels import Call, Fate, Labeller, Labelling, pointwise, singles
from .reduction import LABELS as REDUCTIONS
from .reduction import norm_of, reduces
from .scans import LABELS as SCANS
from .scans import along

_MEAN = "the mean is over what the mask leaves of this rank's elements only"
_OWN = "the norm is of this rank's elements only"


def _masked(plain: Labeller) -> Labeller:
    """``plain``, which labels the call without its mask, with the mask's dims beside the input's."""

    def label(call: Call) -> Labelling | None:
        inputs = tuple(tensor for tensor in call.tensors if tensor.param != "mask")
        made = plain(Call(inputs, {name: value for name, value in call.arguments.items() if name != "mask"}))
        if made is None or len(inputs) != 1 or len(call.tensors) > 2:
            return None
        dims, shape = made.operands[0], inputs[0].shape
        rows = []
        for tensor in call.tensors:
            if tensor.ndim > len(dims):
                return None
            front = len(dims) - tensor.ndim
            pairs = zip(dims[front:], tensor.shape, shape[front:], strict=True)
            rows.append(tuple(None if extent == 1 and whole != 1 else own for own, extent, whole in pairs))
        masks = {at for at, tensor in enumerate(call.tensors) if tensor.param == "mask"}
        spread = frozenset(pair for pair in singles(rows, call.tensors) if pair[0] in masks)
        return replace(made, operands=tuple(rows), spread=spread)

    return label


_PLAIN: dict[str, Labeller] = {
    "sum": reduces(Fate.SUM),
    "mean": reduces(Fate.MEAN, _MEAN),
    "median": REDUCTIONS["mode"],
    "norm": norm_of("ord"),
    "normalize": along(_OWN),
    **{name: REDUCTIONS[name] for name in ("prod", "amax", "amin", "argmax", "argmin", "logsumexp", "var", "std")},
    **{name: SCANS[name] for name in ("cumsum", "cumprod", "softmax", "log_softmax", "softmin")},
}

LABELS: dict[str, Labeller] = {
    **{f"masked.{name}": _masked(plain) for name, plain in _PLAIN.items()},
    "masked.logaddexp": pointwise,
}
