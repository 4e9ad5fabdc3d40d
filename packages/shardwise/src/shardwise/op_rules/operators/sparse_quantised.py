"""Sparse and quantised tensors: linear in nothing, and not followed by dims.

Where the elements of a sparse tensor are depends on values; a quantised or blockwise scaled one has scales that are
whole.
"""

from __future__ import annotations

from ..schema import OpRule, opaque

_SPARSE, _QUANTISED = "is sparse", "is quantised"

RULES = (
    *opaque(
        "has a shape that depends on values",
        "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc coalesce",
        view=False,
    ),
    OpRule("values", "input", "input", law="moves elements without mixing them"),
    *opaque(
        _SPARSE,
        "hspmm hsmm sparse_mask sparse_sampled_addmm indices _indices _values crow_indices col_indices ccol_indices"
        " row_indices indices_copy crow_indices_copy col_indices_copy ccol_indices_copy row_indices_copy values_copy"
        " sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor"
        " sparse_compressed_tensor",
        view=False,
    ),
    *opaque(
        _QUANTISED,
        "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic dequantize int_repr scaled_mm _scaled_mm"
        " _scaled_mm_v2 scaled_grouped_mm scaled_addmm fused_moving_avg_obs_fake_quant",
    ),
)
