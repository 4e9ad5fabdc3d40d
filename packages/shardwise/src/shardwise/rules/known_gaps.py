"""Which true placements does the book refuse on purpose, and which operators of the database has it no row for?

A gap that is not listed here is reported as unlisted, and the report has a table of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Gap:
    """Why facts about some operators are refused. ``ops``: patterns of the database's names; ``code``: of the refusal,
    empty: any. ``book``: ``"global"`` or ``"local"``, empty: both."""

    ops: str
    code: str
    reason: str
    book: str = ""

    def covers(self, book: str, op: str, code: str) -> bool:
        """True if this is why ``op`` is refused with ``code``."""
        return (
            self.book in ("", book) and self.code in ("", code) and any(fnmatchcase(op, ops) for ops in self.patterns)
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self.ops.replace("\n", " ").split(", "))


def reason_for(book: str, op: str, code: str) -> str:
    """Why the book refuses, empty if no gap is listed."""
    return next((gap.reason for gap in GAPS if gap.covers(book, op, code)), "")


GAPS = (
    Gap(
        "*", "SW110", "a pending sum beside a varying operand is refused locally (semantics section 3), and global "
        "types erase to local ones",
    ),
    Gap(
        "nonzero, nonzero_static, argwhere, masked_select, unique_consecutive, isin, masked_scatter", "",
        "how many elements a rank finds depends on its values; true of these values only",
    ),
    Gap(
        "atleast_1d, atleast_2d, atleast_3d, meshgrid*, broadcast_tensors", "",
        "operands that do not meet: all results of one call have one type in the book",
    ),
    Gap(
        "histogram, histogramdd, nextafter, copysign, heaviside, nan_to_num, nansum, nanmean, nanquantile, quantile, "
        "index_reduce (*, scatter_reduce (*, native_dropout_backward, linalg.det, linalg.pinv, cumprod, median, ceil, "
        "floor, round*, trunc, nn.functional.hardshrink, nn.functional.softshrink, nn.functional.threshold, "
        "nn.functional.hardtanh, nn.functional.normalize, nn.functional.max_pool*, nn.functional.adaptive_max_pool*, "
        "nn.functional.relu*, bitwise_left_shift, where, index_put, max (*, min (*, aminmax, topk, kthvalue, mode, "
        "nn.functional.pdist, unique, nn.functional.embedding, nn.functional.embedding_bag, roll, repeat, tile, "
        "narrow_copy, split, unsafe_split, tensor_split, combinations, cartesian_prod, diff, masked.amin, masked.amax, "
        "nn.functional.one_hot, slice_scatter, index_copy, as_strided_scatter, cdist",
        "",
        "true of these arguments only: nothing is read, moved or rounded, nothing is below a limit, or one element is "
        "all there is",
    ),
    Gap(
        "nn.functional.layer_norm, nn.functional.rms_norm, native_layer_norm, native_group_norm, "
        "nn.functional.batch_norm, nn.functional.instance_norm, nn.functional.multi_head_attention_forward", "",
        "some result or statistic does not depend on the operand in this call; the book has one law for all results",
    ),
    Gap(
        "triangular_solve, linalg.lstsq*, linalg.solve_ex, linalg.lu_solve", "",
        "linear in the right-hand side, but the results that come with it are not: one law for all results",
    ),
    Gap(
        "masked.*", "",
        "a Python function that fills with a number or reads sizes; what is checked are the calls inside",
    ),
    Gap(
        "nn.functional.cross_entropy, nn.functional.linear_cross_entropy*, nn.functional.nll_loss, "
        "nn.functional.binary_cross_entropy_with_logits, nn.functional.multilabel_soft_margin_loss", "",
        "linear in targets or class weights, which nobody has as a pending sum",
    ),
    Gap(
        "_softmax_backward_data, max_pool2d_with_indices_backward, _unsafe_masked_index*, _chunk_cat", "",
        "inside backward passes or compiled code; programs do not call it",
    ),
    Gap(
        "nn.functional.cosine_similarity, repeat_interleave", "SW402",
        "a dim of size 1 that is stretched over shards counts as whole",
    ),
)  # fmt: skip

_JITERATOR = "a kernel that the program writes itself, for GPUs only: it declares its own rule"
NO_ROW = {
    "jiterator_unary": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_2inputs_2outputs": _JITERATOR,
    "_batch_norm_with_update": "a kernel that batch_norm calls; programs call batch_norm, which has a row",
    "max_pool2d_with_indices_backward": "a function of the database's own, around a backward kernel",
}
"""Operators of the database without a row, by the database's name, and why."""
