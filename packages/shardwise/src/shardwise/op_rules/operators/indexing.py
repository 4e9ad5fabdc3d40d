"""Which elements are read or written, by position? Linear in what is read and written, not in the positions.

A write into a pending sum must write a pending sum, or zero; a write elsewhere leaves the destination's value in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schema import OpRule
from .guards import Guard, casts, first_of, floating, not_given, only

_READS = "reads elements at positions that are equal on every rank"
_WRITES = "writes into a pending sum must be pending too, or each rank's copy is counted"
_NOT_A_SUM = "is not a sum"


def _summed(*reductions: str) -> Guard:
    """Only these reductions, and no mean of integers, which each rank rounds."""
    listed, rounded = only("reduce", *reductions, reason=_NOT_A_SUM), floating("a mean of integers is rounded")

    def guard(static: Mapping[str, Any]) -> str | None:
        return listed(static) or (rounded(static) if static.get("reduce") == "mean" else None)

    return guard


def _read(op: str, params: str, *spellings: str, view: bool = False) -> OpRule:
    return OpRule(op, params, "input", law=_READS, source=f"torch.{op}", view=view, spellings=spellings)


def _write(op: str, params: str, source: str, *spellings: str) -> OpRule:
    return OpRule(op, params, f"input + {source}", law=_WRITES, source=f"torch.{op}", spellings=spellings)


RULES = (
    _read("getitem", "input index", view=True),
    _read("index", "input indices", "_unsafe_index"),
    _read("gather", "input dim index"),
    _read("index_select", "input dim index"),
    _read("take", "input index"),
    _read("take_along_dim", "input indices dim"),
    *(_read(f"max_unpool{spatial}d", "input indices kernel_size") for spatial in (1, 2, 3)),
    _read("masked_select", "input mask"),
    OpRule(
        "setitem",
        "input index value",
        "input + value",
        law=_WRITES,
        source="torch.Tensor.__setitem__",
        static=("input",),
        guard=casts("input", source="value"),
    ),
    _write("index_add", "input dim index source alpha", "alpha source"),
    _write("index_copy", "input dim index source", "source"),
    _write("index_fill", "input dim index value", "value"),
    _write("index_put", "input indices values accumulate", "values", "_index_put_impl", "_unsafe_index_put"),
    _write("put", "input index source accumulate", "source"),
    _write("scatter_add", "input dim index src", "src"),
    _write("diagonal_scatter", "input src offset dim1 dim2", "src"),
    _write("select_scatter", "input src dim index", "src"),
    _write("slice_scatter", "input src dim start end step", "src"),
    _write("as_strided_scatter", "input src size stride storage_offset", "src"),
    _write("fill_diagonal_", "input fill_value wrap", "fill_value"),
    OpRule(
        "scatter",
        "input dim index src value reduce",
        "input + src + value",
        law=_WRITES,
        source="torch.scatter",
        static=("reduce",),
        guard=only("reduce", None, "add", reason=_NOT_A_SUM),
    ),
    OpRule(
        "scatter_reduce",
        "input dim index src reduce include_self",
        "input + src",
        law=_WRITES,
        source="torch.scatter_reduce",
        static=("reduce",),
        guard=_summed("sum", "mean"),
    ),
    OpRule(
        "index_reduce",
        "input dim index source reduce include_self",
        "input + source",
        law=_WRITES,
        source="torch.index_reduce",
        static=("reduce",),
        guard=_summed("mean"),
    ),
    OpRule(
        "embedding",
        "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
        "weight",
        law="reads rows of the table at positions that are equal on every rank",
        source="torch.nn.functional.embedding",
        static=("max_norm",),
        guard=not_given("max_norm", "max_norm rescales each rank's rows"),
    ),
    OpRule(
        "torch.embedding",
        "weight indices padding_idx scale_grad_by_freq sparse",
        "weight",
        law="reads rows of the table at positions that are equal on every rank",
        source="torch.embedding",
    ),
    OpRule(
        "embedding_bag",
        "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights"
        " include_last_offset padding_idx",
        "weight per_sample_weights",
        law="sums or means of rows of the table, bilinear with the weights of the samples",
        source="torch.nn.functional.embedding_bag",
        static=("max_norm", "mode"),
        guard=first_of(
            not_given("max_norm", "max_norm rescales each rank's rows"),
            only("mode", "mean", "sum", reason="is not a sum", default="mean"),
        ),
    ),
    # Returns index tensors beside its result.
    OpRule(
        "torch.embedding_bag",
        "weight indices offsets",
        law="hands back which rows it read",
        spellings=("_embedding_bag",),
    ),
)
