"""Which reductions commute with a pending sum? Sums and means; extremes, norms and variances do not.

``nansum`` and ``nanmean`` are not here: which elements they skip is decided on each rank's part.
"""

from __future__ import annotations

from ..schema import OpRule
from .guards import casts, not_given, only, pending

_TODAY = (not_given("size_average", "may divide by the weights"), not_given("reduce", "may divide by the weights"))

RULES = (
    OpRule(
        "sum",
        "input dim keepdim dtype",
        "input",
        law="a sum of sums is the sum of everything",
        source="torch.sum",
        static=("dtype",),
        guard=casts("dtype"),
    ),
    OpRule(
        "mean",
        "input dim keepdim dtype",
        "input",
        law="a sum divided by a count that is the same on every rank",
        source="torch.mean",
        static=("dtype",),
        guard=casts("dtype"),
    ),
    OpRule(
        "sum_to_size",
        "input size",
        "input",
        law="sums over broadcast dims",
        source="torch.Tensor.sum_to_size",
        view=True,
    ),
    OpRule("trace", "input", "input", law="a sum along the diagonal", source="torch.trace"),
    OpRule(
        "diff",
        "input n dim prepend append",
        "input + prepend + append",
        law="differences of neighbours; what is prepended or appended must be pending too",
        source="torch.diff",
    ),
    OpRule(
        "gradient",
        "input spacing",
        "input",
        law="differences of neighbours divided by distances",
        source="torch.gradient",
    ),
    OpRule(
        "bincount",
        "input weights minlength",
        "weights",
        law="weights summed by bin; which bin is not linear",
        source="torch.bincount",
    ),
    # The weighted mean divides by the weights of the targets, which the input does not enter.
    OpRule(
        "nll_loss",
        "input target weight size_average ignore_index reduce reduction",
        "input weight",
        law="picks one element per target and sums them with weights",
        source="torch.nn.functional.nll_loss",
        static=("size_average", "reduce", "reduction"),
        guard=pending("weight", only("reduction", "none", "sum", reason="divides by the weights"), *_TODAY),
        spellings=("nll_loss_nd", "nll_loss2d"),
    ),
    OpRule(
        "segment_reduce",
        "data reduce lengths indices offsets initial",
        "data + initial",
        law="sums or means over segments; an initial value is added once per rank",
        source="torch.segment_reduce",
        static=("reduce",),
        guard=only("reduce", "sum", "mean", reason="is not a sum"),
    ),
)
