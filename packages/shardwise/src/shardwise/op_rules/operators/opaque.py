"""Which operators are deterministic functions that are linear in nothing? An explicit list, by family.

Being listed matters: an operator with no rule is a finding, never a guess. A pending sum must be reduced before any of
these; equal operands give equal results, and varying ones varying results.
"""

from __future__ import annotations

from ..schema import OpRule
from .positions import POSITIONS

FAMILIES: dict[str, str] = {
    "rounds": """
        ceil floor round trunc fix frac special.round fmod remainder rremainder floor_divide rfloor_divide
        fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fused_moving_avg_obs_fake_quant
    """,
    "compares": """
        eq ne lt le gt ge less less_equal greater greater_equal not_equal isclose isfinite isinf isnan isneginf
        isposinf isreal isin signbit sign sgn heaviside logical_and logical_or logical_not logical_xor
    """,
    "combines bits": """
        bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __and__ __rand__
        __iand__ __or__ __ror__ __ior__ __xor__ __rxor__ __ixor__ __invert__ __lshift__ __rlshift__ __ilshift__
        __rshift__ __rrshift__ __irshift__ gcd lcm
    """,
    "clips": """
        clamp clamp_max clamp_min clip nan_to_num maximum minimum fmax fmin threshold _threshold hardtanh relu6
        renorm
    """,
    "has a magnitude": "abs absolute angle copysign nextafter frexp polar hypot logaddexp logaddexp2",
    "is a power, exponential or logarithm": """
        pow rpow float_power square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p logit special.exp2
        special.expm1 special.log1p special.logit
    """,
    "is trigonometric or hyperbolic": """
        sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh
        atan2 arctan2 sinc special.sinc
    """,
    "is a special function": """
        digamma lgamma polygamma mvlgamma igamma igammac erf erfc erfinv i0 sigmoid special.airy_ai
        special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 special.digamma special.entr
        special.erf special.erfc special.erfcx special.erfinv special.expit special.gammainc special.gammaincc
        special.gammaln special.i0 special.i0e special.i1 special.i1e special.log_ndtr special.modified_bessel_i0
        special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1 special.multigammaln
        special.ndtr special.ndtri special.polygamma special.psi special.scaled_modified_bessel_k0
        special.scaled_modified_bessel_k1 special.spherical_bessel_j0 special.zeta special.chebyshev_polynomial_t
        special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w
        special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
        special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w special.hermite_polynomial_h
        special.hermite_polynomial_he special.laguerre_polynomial_l special.legendre_polynomial_p
    """,
    "is an activation": """
        relu elu selu celu gelu silu mish glu prelu leaky_relu logsigmoid log_sigmoid log_sigmoid_forward softplus
        softsign softshrink hardshrink tanhshrink hardsigmoid hardswish
    """,
    "normalises by a sum of exponentials": """
        softmax log_softmax softmin logsumexp logcumsumexp _softmax _log_softmax _safe_softmax _masked_softmax
        special.log_softmax special.logsumexp special.softmax
    """,
    "normalises by its own statistics": """
        normalize local_response_norm cosine_similarity native_batch_norm
        batch_norm_stats batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
        batch_norm_update_stats batch_norm_backward_elemt batch_norm_backward_reduce quantized_batch_norm
        miopen_batch_norm _native_batch_norm_legit cudnn_batch_norm norm_except_dim _weight_norm
        _weight_norm_interface _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
        _batch_norm_impl_index embedding_renorm_
    """,
    "is a norm or a distance": """
        norm frobenius_norm nuclear_norm native_norm linalg.norm linalg.vector_norm linalg.matrix_norm linalg.cond
        dist cdist pdist pairwise_distance
    """,
    "is an extreme": """
        max min amax amin aminmax argmax argmin cummax cummin kthvalue topk sort msort argsort median nanmedian mode
        quantile nanquantile max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
        max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
        quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
    """,
    "is a statistic": """
        var std var_mean std_mean cov corrcoef prod cumprod all any count_nonzero histc histogram histogramdd nansum
        nanmean lp_pool1d lp_pool2d lp_pool3d hash_tensor
    """,
    "has a shape that depends on values": """
        nonzero nonzero_static argwhere unique unique_consecutive _unique2 unique_dim to_sparse to_sparse_coo
        to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc coalesce
    """,
    "decomposes or inverts": """
        inverse pinverse det logdet slogdet cholesky cholesky_inverse qr svd lu lu_unpack geqrf orgqr
        linalg.cholesky linalg.cholesky_ex linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
        linalg.householder_product linalg.inv linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.lu
        linalg.lu_factor linalg.lu_factor_ex linalg.matrix_rank linalg.pinv linalg.qr linalg.slogdet linalg.svd
        linalg.svdvals linalg.tensorinv linalg.vander vander
    """,
    "is a power of a matrix": "matrix_exp matrix_power linalg.matrix_exp linalg.matrix_power",
    "looks values up in a table": "bucketize searchsorted one_hot unravel_index",
    "is a recurrent cell": """
        lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell quantized_lstm_cell quantized_gru_cell
        quantized_rnn_relu_cell quantized_rnn_tanh_cell miopen_rnn _thnn_fused_lstm_cell _thnn_fused_gru_cell
    """,
    "is fused with an activation": "_addmm_activation _add_relu miopen_convolution_relu miopen_convolution_add_relu",
    "is a fused transformer layer": "_transformer_encoder_layer_fwd _native_multi_head_attention",
    "packs sequences": "_pack_padded_sequence _pad_packed_sequence pad_sequence to_padded_tensor",
    "is quantised": """
        quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic dequantize int_repr
        choose_qparams_optimized fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix _wrapped_linear_prepack
        _wrapped_quantized_linear_prepacked _rowwise_prune scaled_mm _scaled_mm _scaled_mm_v2 scaled_grouped_mm
    """,
    "is sparse": """
        hspmm hsmm sparse_mask sparse_sampled_addmm _sparse_mask_projection _sparse_broadcast_to_copy
        indices _indices _values
        crow_indices col_indices ccol_indices row_indices indices_copy _indices_copy crow_indices_copy
        col_indices_copy ccol_indices_copy row_indices_copy sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor
        sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor
    """,
    "calls a Python function on each element": "map_ map2_",
    "masks inside compiled code": "_unsafe_masked_index _unsafe_masked_index_put_accumulate",
    "is internal to functionalisation": "slice_inverse values_copy _values_copy",
}

RULES = tuple(
    OpRule(op, POSITIONS.get(op, "input other"), law=f"{family}: a pending sum does not pass")
    for family, names in FAMILIES.items()
    for op in names.split()
)
