"""Which true placements do the op rules refuse on purpose, and which operators of the database have none?

A gap that is not listed here is reported as unlisted, and the report has a table of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Gap:
    """Why facts about some operators are refused. ``ops``: patterns of the database's names; ``code``: of the refusal,
    empty: any. ``ruleset``: ``"global"`` or ``"local"``, empty: both."""

    ops: str
    code: str
    reason: str
    ruleset: str = ""

    def covers(self, ruleset: str, op: str, code: str) -> bool:
        """True if this is why ``op`` is refused with ``code``."""
        return (
            self.ruleset in ("", ruleset)
            and self.code in ("", code)
            and any(fnmatchcase(op, ops) for ops in self.patterns)
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self.ops.replace("\n", " ").split(", "))


def reason_for(ruleset: str, op: str, code: str) -> str:
    """Why the rules refuse, empty if no gap is listed."""
    return next((gap.reason for gap in GAPS if gap.covers(ruleset, op, code)), "")


_SUBSET = "which elements a write meets depends on positions: here each destination is hit once, or all are overwritten"
_NEUTRAL = "this argument makes it the identity, or does not read the operand; no rule is about that one value"
_KERNEL = "inside backward passes or compiled code; programs do not call it"
_BY_VALUE = (
    "true of these values only: nothing is NaN, nothing is found, a mask takes all or nothing, or every rank has the "
    "extreme element"
)

GAPS = (
    Gap(
        "*", "SW110", "a pending sum beside a varying operand is refused locally (Law 3.1), and global "
        "types erase to local ones",
    ),
    Gap("scatter_reduce (*, index_reduce (*", "SW112", _SUBSET),
    Gap("index_copy, index_put, slice_scatter, as_strided_scatter", "SW113", _SUBSET),
    Gap(
        "split, unsafe_split, slice_scatter", "SW405",
        "the range is all of the dim by its size: a rank knows the size of its shard, not of the dim",
    ),
    Gap("tensor_split", "SW405", "how many pieces there are is in a tensor, whose values no rule reads"),
    Gap("diff", "", "with n=0 it gives its input back and reads nothing else; nobody appends to that"),
    Gap("index_add", "SW113", "with alpha=0 nothing is added"),
    Gap(
        "nn.functional.softshrink, nn.functional.hardshrink, nn.functional.normalize, "
        "nn.functional.adaptive_max_pool*, nn.functional.max_pool1d",
        "SW112", _NEUTRAL,
    ),
    Gap("cdist", "SW402", "with p=0 any two rows have one distance: the number of their features"),
    Gap("quantile, nanquantile", "SW112", "the middle of one or two elements is their mean"),
    Gap("linalg.det", "SW112", "the determinant of a matrix of one element is that element"),
    Gap("ceil, floor, trunc, round*, bitwise_left_shift", "SW112", "integers are whole as they are", "local"),
    Gap("nextafter", "SW112", "the last bit is moved, which is less than the numbers are compared by"),
    Gap(
        "nan_to_num, nansum, nanmean, amax, amin, median, copysign, where, isin, masked_scatter, masked.*", "",
        _BY_VALUE,
    ),
    Gap(
        "linalg.pinv, linalg.matrix_norm", "SW405",
        "true of these values only: with this tolerance or these elements the result is zero, or one row's",
    ),
    Gap(
        "cartesian_prod", "SW405",
        "parts of one element in front leave the next one outermost; whether they are shards, sizes do not say",
    ),
    Gap(
        "histogram, histogramdd", "SW401",
        "counts are summed and the edges beside them are not: what happens along a dim is one thing for all results",
    ),
    Gap(
        "histogram, histogramdd", "SW112",
        "linear in the weights alone, beside edges whose number depends on the call; or no element falls into a bin",
    ),
    Gap(
        "nn.functional.one_hot", "SW405",
        "without num_classes there are as many classes as the largest index says, which here every rank has",
    ),
    Gap(
        "nn.functional.embedding, nn.functional.embedding_bag", "",
        "max_norm rescales the rows of the table that a rank looks up, and scale_grad_by_freq counts its own ids",
    ),
    Gap(
        "nn.functional.instance_norm", "SW405", "each rank would update the running statistics from its own samples"
    ),
    Gap(
        "native_batch_norm, _native_batch_norm_legit, _batch_norm_with_update", "",
        "a kernel that batch_norm calls; programs call batch_norm, whose rule has the law",
    ),
    Gap(
        "nn.functional.linear_cross_entropy*", "SW112",
        "with class numbers to aim at it is linear in the weights for some reductions only, and refused for all",
    ),
    Gap(
        "nn.functional.max_unpool*", "SW405",
        "with output_size given, each rank fills in its own elements of the whole; without, it does not",
    ),
    Gap(
        "nn.functional.multi_head_attention_forward", "SW121",
        "draws random numbers, which are the same on every rank of the sweep and need not be in a program", "local",
    ),
    Gap("max_pool2d_with_indices_backward, _unsafe_masked_index*, _chunk_cat", "", _KERNEL),
)  # fmt: skip

_JITERATOR = "a kernel that the program writes itself, for GPUs only: it declares its own rule"
_ATTENTION = "a kernel that scaled_dot_product_attention calls; programs call that, which has a rule"
NO_RULE = {
    "jiterator_unary": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_2inputs_2outputs": _JITERATOR,
    "_batch_norm_with_update": "a kernel that batch_norm calls; programs call batch_norm, which has a rule",
    "_unsafe_masked_index_put_accumulate": "a kernel of compiled code, whose backward it is",
    "torch.ops.aten._flash_attention_forward": _ATTENTION,
    "torch.ops.aten._efficient_attention_forward": _ATTENTION,
    "max_pool2d_with_indices_backward": "a function of the database's own, around a backward kernel",
}
"""Operators of the database without a rule, by the database's name, and why."""
