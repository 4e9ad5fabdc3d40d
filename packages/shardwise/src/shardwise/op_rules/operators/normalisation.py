"""What do normalisations do to a pending sum? Non-linear in their input, affine in weight and bias.

A missing weight means one, which no rank can share out: then a pending bias alone is refused.
"""

from __future__ import annotations

from ..schema import OpRule, Result
from .guards import Guard, first_of, needs, only, pending

_AFFINE = "the normalised input times weight plus bias; the input itself is divided by its own norm"
_ONE = "without a weight the normalised input is added once per rank"
_OWN_STATISTICS = "normalises by the input's own statistics"


def _normalises(
    op: str, params: str, linear: str, *static: str, guard: Guard | None = None, statistics: int = 0
) -> OpRule:
    """``statistics``: results beside the first one, which follow from the input alone."""
    source = f"torch.{op}" if statistics else f"torch.nn.functional.{op}"
    others = (Result(of="input"),) * statistics
    return OpRule(op, params, linear, others, law=_AFFINE, source=source, static=static, guard=guard)


_NEEDS_WEIGHT = needs("weight", "bias", _ONE)
# With fixed statistics a batch norm is (input - mean) * weight / deviation + bias; else, in weight and bias alone.
_FIXED = "input weight + running_mean weight + bias"


def _needs_fixed(given: Guard) -> Guard:
    """``given`` says that the statistics are not fixed."""
    return first_of(*(pending(name, given) for name in ("input", "running_mean")))


_EVALUATION = _needs_fixed(only("training", False, reason=_OWN_STATISTICS, default=False))
_RUNNING = _needs_fixed(only("use_input_stats", False, reason=_OWN_STATISTICS, default=True))

RULES = (
    _normalises("layer_norm", "input normalized_shape weight bias eps", "weight + bias", guard=_NEEDS_WEIGHT),
    _normalises("group_norm", "input num_groups weight bias eps", "weight + bias", guard=_NEEDS_WEIGHT),
    _normalises(
        "native_layer_norm",
        "input normalized_shape weight bias eps",
        "weight + bias",
        guard=_NEEDS_WEIGHT,
        statistics=2,
    ),
    _normalises(
        "native_group_norm",
        "input weight bias N C HxW group eps",
        "weight + bias",
        guard=_NEEDS_WEIGHT,
        statistics=2,
    ),
    _normalises("_fused_rms_norm", "input normalized_shape weight eps", "weight", statistics=1),
    _normalises("rms_norm", "input normalized_shape weight eps", "weight"),
    _normalises(
        "batch_norm",
        "input running_mean running_var weight bias training momentum eps",
        _FIXED,
        "training",
        guard=_EVALUATION,
    ),
    _normalises(
        "torch.batch_norm",
        "input weight bias running_mean running_var training momentum eps",
        _FIXED,
        "training",
        guard=_EVALUATION,
    ),
    _normalises(
        "instance_norm",
        "input running_mean running_var weight bias use_input_stats momentum eps",
        _FIXED,
        "use_input_stats",
        guard=_RUNNING,
    ),
    _normalises(
        "torch.instance_norm",
        "input weight bias running_mean running_var use_input_stats momentum eps",
        _FIXED,
        "use_input_stats",
        guard=_RUNNING,
    ),
)
