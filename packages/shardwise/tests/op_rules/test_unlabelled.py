"""Which rules have a local rule only? All of them, each with its reason, so that nothing is forgotten.

Kinds that need no labels (constants, metadata, values handed to Python, optimizer kernels) are left out.
"""

from __future__ import annotations

from shardwise.op_rules.operators.dims import all_labels
from shardwise.op_rules.registry import all_rules
from shardwise.op_rules.schema import Kind

REASONS: dict[str, str] = {
    "draws into a new tensor or a destination, and has no operand": """
        rand randn randint randperm normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ bernoulli_
        rand_like randn_like randint_like
    """,
    "initialises by the sizes that it sees, which are a shard's": """
        kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ orthogonal_ sparse_
    """,
    "starts from a matrix that every rank draws for itself": "pca_lowrank svd_lowrank lobpcg",
    "replaces the memory of its operand": "set_",
    "kernel of another accelerator, never called by name": """
        miopen_convolution miopen_convolution_transpose miopen_convolution_relu miopen_convolution_add_relu
        miopen_batch_norm cudnn_batch_norm miopen_rnn
    """,
    "kernel behind a labelled function, called by compiled code": """
        _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_impl_index
        _thnn_fused_lstm_cell _thnn_fused_gru_cell _transformer_encoder_layer_fwd _native_multi_head_attention
        _flash_attention_forward _efficient_attention_forward nll_loss_forward nll_loss2d_forward
        _unsafe_masked_index_put_accumulate _chunk_cat
        slice_inverse values_copy _values_copy
    """,
    "part of synchronised batch norm, which communicates": """
        batch_norm_stats batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
        batch_norm_update_stats batch_norm_backward_elemt batch_norm_backward_reduce
    """,
    "writes to an operand besides its result": "fused_moving_avg_obs_fake_quant embedding_renorm_",
    "packs sequences into a layout that no dim names": "_pack_padded_sequence _pad_packed_sequence to_padded_tensor",
    "quantised or blockwise scaled: its scales are whole": """
        quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic dequantize int_repr
        choose_qparams_optimized quantized_batch_norm quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
        quantized_lstm_cell quantized_gru_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell
        fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16
        fbgemm_pack_quantized_matrix _wrapped_linear_prepack _wrapped_quantized_linear_prepacked _rowwise_prune
        scaled_mm _scaled_mm _scaled_mm_v2 scaled_grouped_mm
    """,
    "sparse: where its elements are depends on values": """
        hspmm hsmm sparse_mask sparse_sampled_addmm _sparse_mask_projection _sparse_broadcast_to_copy values indices
        _indices _values crow_indices col_indices ccol_indices row_indices indices_copy _indices_copy
        crow_indices_copy col_indices_copy ccol_indices_copy row_indices_copy sparse_coo_tensor sparse_csr_tensor
        sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor to_sparse to_sparse_coo
        to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc coalesce
    """,
}

PENDING = """
    getitem index gather index_select take take_along_dim masked_select setitem index_add index_copy index_fill
    index_put put scatter_add diagonal_scatter select_scatter slice_scatter as_strided_scatter fill_diagonal_
    scatter scatter_reduce index_reduce embedding torch.embedding embedding_bag torch.embedding_bag
"""
"""Reads and writes at positions: to be labelled, and then to be taken out of here."""


def test_every_rule_has_labels_or_a_reason() -> None:
    labelled = all_labels()
    without = {rule.op for rule in all_rules() if rule.kind in (Kind.PURE, Kind.RANDOM)} - set(labelled)
    explained = [name for names in REASONS.values() for name in names.split()]
    assert len(explained) == len(set(explained)), "a rule has two reasons"
    assert without - set(explained) - set(PENDING.split()) == set(), "rules without labels and without a reason"
    assert set(explained) - without == set(), "rules that have labels by now, or do not exist"
