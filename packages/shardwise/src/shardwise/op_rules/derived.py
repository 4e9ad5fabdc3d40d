"""What torch 2.13.0 says of its operators, by their names in the registry. Written by ``make rules``.

``PARAMETERS``  positional parameters, then those that go by keyword only; the first operand is called ``input``.
``ALIASES``     further names of an operator.
``POINTWISE``   tagged as working element by element, but for those that ``REFUTED`` has a reason for: there the numeric
                oracle disagrees with the tag.
``VIEWS``       operators whose result may share the first operand's memory.
``SEEDED``      tagged as drawing from a random generator.
"""

from __future__ import annotations

import re


def _entries(text: str) -> list[tuple[str, list[str]]]:
    """What stands before the colon of every entry, and the words behind it."""
    found = (entry.partition(":") for entry in re.split(r"\n {4}(?! )", text) if entry.strip())
    return [(" ".join(head.split()), tail.split()) for head, _, tail in found]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARAMETERS = {
    name: parameters
    for parameters, names in _entries("""
    A: linalg.det linalg.inv linalg.slogdet
    A B left: linalg.solve
    A B left check_errors: linalg.solve_ex
    A check_errors inverse info: linalg.inv_ex
    A driver: linalg.svdvals
    A full_matrices driver U S Vh: linalg.svd
    A k B X n iK niter tol largest method tracker ortho_iparams ortho_fparams ortho_bparams: lobpcg
    A mode: linalg.qr
    A offset dim1 dim2: linalg.diagonal
    A pivot: linalg.lu linalg.lu_factor
    A pivot check_errors: linalg.lu_factor_ex
    A q center niter: pca_lowrank
    A q niter M: svd_lowrank
    LD pivots B hermitian: linalg.ldl_solve
    LU pivots B left adjoint: linalg.lu_solve
    LU_data LU_pivots unpack_data unpack_pivots: lu_unpack
    a: _sym_int _sym_sqrt sym_float sym_int sym_not sym_sqrt
    a b: sym_max sym_min
    a b dims: tensordot
    abs angle: polar
    anchor positive negative distance_function margin swap reduction: triplet_margin_with_distance_loss
    anchor positive negative margin p eps swap reduction: torch.triplet_margin_loss
    anchor positive negative margin p eps swap size_average reduce reduction: triplet_margin_loss
    b t f: sym_ite
    ccol_indices row_indices values size dtype: sparse_bsc_tensor sparse_csc_tensor
    compressed_indices plain_indices values size dtype: sparse_compressed_tensor
    condition input other: where
    count prob: binomial
    crow_indices col_indices values size dtype: sparse_bsr_tensor sparse_csr_tensor
    data dtype: as_tensor
    data reduce lengths indices offsets axis unsafe initial: segment_reduce
    elements test_elements assume_unique invert: isin
    equation tensors path: einsum
    grad_out input mean invstd weight input_g weight_g bias_g: batch_norm_backward_reduce
    grad_out input mean invstd weight sum_dy sum_dy_xmu count: batch_norm_backward_elemt
    indices shape: unravel_index
    indices values size dtype is_coalesced: sparse_coo_tensor
    input: abs absolute acos acosh adjoint alias_copy angle arccos arccosh arcsin arcsinh arctan arctanh
        argwhere asin asinh atan atanh atleast_1d atleast_2d atleast_3d bitwise_not ccol_indices
        ccol_indices_copy ceil coalesce col_indices col_indices_copy conj conj_physical corrcoef cos cosh cpu
        crow_indices crow_indices_copy cuda data deg2rad dense_dim dequantize det detach detach_copy digamma
        dim element_size erf erfc erfinv exp exp2 expm1 fix fliplr flipud floor frac frexp get_device
        hardsigmoid hardswish i0 imag indices indices_copy int_repr inverse is_coalesced is_complex is_conj
        is_distributed is_floating_point is_inference is_leaf is_neg is_nonzero is_pinned is_signed isfinite
        isinf isnan isneginf isposinf isreal item lgamma linalg.eig linalg.eigvals linalg.matrix_exp log log10
        log1p log2 logdet logical_not mH mT matrix_exp msort neg negative nonzero numel output_nr pin_memory
        poisson positive q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
        q_zero_point qscheme rad2deg ravel real reciprocal requires_grad_ resolve_conj resolve_neg retain_grad
        retains_grad row_indices row_indices_copy rsqrt sgn sigmoid sign signbit sin sinc sinh slogdet
        softsign sparse_dim special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0
        special.bessel_y1 special.digamma special.entr special.erf special.erfc special.erfcx special.erfinv
        special.exp2 special.expit special.expm1 special.gammaln special.i0 special.i0e special.i1 special.i1e
        special.log1p special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
        special.modified_bessel_k0 special.modified_bessel_k1 special.ndtr special.ndtri special.psi
        special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.sinc
        special.spherical_bessel_j0 sqrt square storage_offset t t_copy tan tanh tanhshrink torch.mish
        torch.relu torch.relu6 torch.selu torch.silu trace trunc values values_copy view_as_complex
        view_as_complex_copy view_as_real view_as_real_copy zero_
    input A upper transpose unitriangular X M: triangular_solve
    input B upper left unitriangular: linalg.solve_triangular
    input LU_data LU_pivots: lu_solve
    input N: linalg.vander
    input N increasing: vander
    input UPLO: linalg.eigvalsh
    input UPLO eigvals eigvecs: linalg.eigh
    input a tau: geqrf
    input alpha: torch.celu
    input alpha inplace: celu elu
    input alpha scale input_scale: torch.elu
    input approximate: gelu
    input axis0 axis1: swapaxes
    input b rcond driver: linalg.lstsq
    input batch1 batch2 beta alpha: addbmm
    input batch1 batch2 out_dtype beta alpha: baddbmm
    input beta threshold: softplus
    input bins min max: histc
    input bins range weight density: histogram histogramdd
    input blocksize dense_dim: to_sparse_bsc to_sparse_bsr
    input boundaries out_int32 right: bucketize
    input chunks dim: chunk unsafe_chunk
    input correction fweights aweights: cov
    input decimals: round special.round
    input dense_dim: to_sparse_csc to_sparse_csr
    input diagonal: diag tril triu
    input dim: count_nonzero cummax cummin fft.fftshift fft.ifftshift glu logcumsumexp size squeeze
        squeeze_copy stride unbind unbind_copy unsqueeze unsqueeze_copy
    input dim _stacklevel dtype: log_softmax softmax softmin
    input dim descending: argsort
    input dim descending values indices: sort
    input dim dtype: cumprod cumsum special.log_softmax special.softmax torch.log_softmax torch.softmax
    input dim index: index_select select select_copy
    input dim index source: index_copy
    input dim index source alpha: index_add
    input dim index source reduce include_self: index_reduce
    input dim index sparse_grad: gather
    input dim index src: scatter_add
    input dim index src reduce: scatter
    input dim index src reduce include_self: scatter_reduce
    input dim index value: index_fill
    input dim keepdim: all amax amin aminmax any argmax argmin frobenius_norm logsumexp nuclear_norm
        special.logsumexp
    input dim keepdim dtype: mean nanmean nansum prod sum
    input dim keepdim max max_values: max
    input dim keepdim min min_indices: min
    input dim keepdim mode: hash_tensor
    input dim keepdim values indices: median mode nanmedian
    input dim sizes: unflatten
    input dim start end step: slice_copy
    input dim start length: narrow narrow_copy
    input dim unbiased keepdim: std std_mean var var_mean
    input dim0 dim1: swapdims transpose transpose_copy
    input dimension size step: torch.unfold unfold_copy
    input dims: flip permute permute_copy tile
    input downscale_factor: pixel_unshuffle
    input dtype: to_mkldnn
    input dtype masked_grad: to_dense
    input dtype memory_format: empty_like ones_like rand_like randn_like zeros_like
    input dtype non_blocking copy memory_format: to
    input dtype reduce_range: quantize_per_tensor_dynamic
    input end weight: lerp
    input eps: batch_norm_stats logit special.logit
    input exponent: float_power pow
    input fill_value dtype memory_format: full_like
    input fill_value wrap: fill_diagonal_
    input from to: random uniform_
    input gradient retain_graph create_graph: backward
    input grid interpolation_mode padding_mode align_corners: grid_sampler grid_sampler_2d grid_sampler_3d
    input grid mode padding_mode align_corners: grid_sample
    input groups: channel_shuffle native_channel_shuffle
    input hermitian: linalg.ldl_factor
    input hermitian check_errors: linalg.ldl_factor_ex
    input hx params has_biases num_layers dropout train bidirectional batch_first: gru lstm rnn_relu rnn_tanh
    input hx w_ih w_hh b_ih b_hh: gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell
    input ind: linalg.tensorinv
    input index: take
    input index source accumulate: put
    input indices: index
    input indices dim: take_along_dim
    input indices kernel_size stride padding output_size: max_unpool1d max_unpool2d max_unpool3d
    input indices max_norm norm_type: embedding_renorm_
    input indices output_size: torch.max_unpool2d
    input indices output_size stride padding: torch.max_unpool3d
    input indices values accumulate: index_put
    input inplace: mish relu relu6 selu silu
    input input: dot is_set_to
    input input2: orgqr
    input input2 input3 left transpose: ormqr
    input input2 upper: cholesky_solve
    input k dim keepdim values indices: kthvalue
    input k dim largest sorted values indices: topk
    input k dims: rot90
    input kernel_size dilation padding stride: unfold
    input kernel_size output_size output_ratio return_indices _random_samples:
        fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
    input kernel_size output_size random_samples output indices: fractional_max_pool2d fractional_max_pool3d
    input kernel_size stride padding ceil_mode count_include_pad: avg_pool1d
    input kernel_size stride padding ceil_mode count_include_pad divisor_override: avg_pool2d avg_pool3d
    input kernel_size stride padding dilation ceil_mode: max_pool1d max_pool2d max_pool3d
        torch.max_pool1d_with_indices torch.max_pool2d_with_indices torch.max_pool3d_with_indices
    input kernel_size stride padding dilation ceil_mode return_indices: max_pool1d_with_indices
        max_pool2d_with_indices max_pool3d_with_indices
    input lambd: exponential_ hardshrink softshrink
    input linear_weight target linear_bias weight reduction ignore_index label_smoothing options:
        linear_cross_entropy
    input low high dtype memory_format: randint_like
    input lower upper training: torch.rrelu
    input lower upper training inplace: rrelu
    input mask: masked_select sparse_mask
    input mask source: masked_scatter
    input mask value: masked_fill
    input mat vec beta alpha: addmv
    input mat1 mat2 beta alpha: sspaddmm
    input mat1 mat2 out_dtype beta alpha: addmm
    input mat2: smm
    input mat2 out_dtype: bmm mm
    input max: clamp_max
    input mean invstd running_mean running_var momentum eps count: batch_norm_gather_stats
    input mean invstd running_mean running_var momentum eps counts: batch_norm_gather_stats_with_counts
    input mean std: log_normal_
    input median sigma: cauchy_
    input memory_format: chalf clone contiguous is_contiguous
    input min: clamp_min
    input min max: clamp clip
    input min_val max_val: torch.hardtanh
    input min_val max_val inplace: hardtanh
    input n: linalg.matrix_power matrix_power special.chebyshev_polynomial_t special.chebyshev_polynomial_u
        special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.hermite_polynomial_h
        special.hermite_polynomial_he special.laguerre_polynomial_l special.legendre_polynomial_p
        special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
        special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w
    input n dim norm: fft.fft fft.hfft fft.ifft fft.ihfft fft.irfft fft.rfft
    input n dim prepend append: diff
    input n_fft hop_length win_length window center normalized onesided length return_complex: istft
    input n_fft hop_length win_length window center pad_mode normalized onesided return_complex
        align_to_window: stft
    input nan posinf neginf: nan_to_num
    input negative_slope: torch.leaky_relu
    input negative_slope inplace: leaky_relu
    input norm_type kernel_size stride ceil_mode: lp_pool1d lp_pool2d lp_pool3d
    input normalized_shape weight bias eps: layer_norm native_layer_norm
    input normalized_shape weight bias eps cudnn_enable: torch.layer_norm
    input normalized_shape weight eps: rms_norm
    input num_classes: one_hot
    input num_groups weight bias eps: group_norm
    input num_groups weight bias eps cudnn_enabled: torch.group_norm
    input num_samples replacement: multinomial
    input numel n_bins ratio bit_width: choose_qparams_optimized
    input observer_on fake_quant_on running_min running_max scale zero_point averaging_const quant_min
        quant_max ch_axis per_row_fake_quant symmetric_quant: fused_moving_avg_obs_fake_quant
    input offset: diagflat
    input offset dim1 dim2: diag_embed diagonal diagonal_copy
    input ord dim keepdim dtype: linalg._powsum linalg.matrix_norm linalg.norm linalg.vector_norm
    input other: arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
        copysign eq equal expand_as floor_divide fmax fmin fmod gcd ge greater greater_equal gt hypot igamma
        igammac inner is_same_size kron lcm ldexp le less less_equal linalg.matmul logaddexp logaddexp2
        logical_and logical_or logical_xor lt matmul maximum minimum mul multiply ne nextafter not_equal
        remainder reshape_as result_type special.gammainc special.gammaincc special.xlog1py special.xlogy
        special.zeta true_divide type_as vdot view_as xlogy
    input other alpha: add rsub sub subtract
    input other dim: cross linalg.cross
    input other dims: linalg.tensorsolve
    input other p: dist
    input other rounding_mode: div divide
    input other rtol atol equal_nan: allclose isclose
    input output_size: adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d
    input output_size kernel_size dilation padding stride: fold
    input output_size return_indices: adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
        adaptive_max_pool3d_with_indices
    input p: bernoulli geometric_ linalg.cond mvlgamma pdist special.multigammaln
    input p dim eps: normalize
    input p dim keepdim dtype: native_norm norm
    input p dim maxnorm: renorm
    input p train: feature_dropout native_dropout torch.alpha_dropout torch.dropout
        torch.feature_alpha_dropout
    input p training inplace: alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout
    input pad mode value: pad
    input pad value: constant_pad_nd
    input padding output_size: to_padded_tensor
    input q dim keepdim interpolation: nanquantile quantile
    input r with_replacement: combinations
    input rcond: pinverse
    input rcond hermitian: linalg.pinv
    input repeats: repeat
    input repeats dim output_size: repeat_interleave
    input return_inverse return_counts dim: unique_consecutive
    input running_mean running_var momentum: batch_norm_update_stats
    input running_mean running_var weight bias training momentum eps: batch_norm
    input running_mean running_var weight bias use_input_stats momentum eps: instance_norm
    input s: record_stream
    input s dim norm: fft.fft2 fft.fftn fft.hfft2 fft.hfftn fft.ifft2 fft.ifftn fft.ihfft2 fft.ihfftn
        fft.irfft2 fft.irfftn fft.rfft2 fft.rfftn
    input scale zero_point axis quant_min quant_max: fake_quantize_per_channel_affine
    input scale zero_point dtype: quantize_per_tensor
    input scale zero_point quant_min quant_max: fake_quantize_per_tensor_affine
    input scales zero_points axis dtype: quantize_per_channel
    input sections: dsplit hsplit vsplit
    input sections dim: tensor_split
    input shape: reshape
    input shifts dims: roll
    input size: broadcast_to sum_to_size view view_copy
    input size alpha beta k: local_response_norm
    input size dtype: new_empty new_ones new_zeros
    input size fill_value: nonzero_static
    input size fill_value dtype: new_full
    input size implicit: expand expand_copy
    input size memory_format: resize
    input size scale_factor mode align_corners recompute_scale_factor antialias: interpolate
    input size sparse_dim dense_dim: sparse_resize_ sparse_resize_and_clear_
    input size stride dtype: new_empty_strided
    input size stride storage_offset: as_strided as_strided_copy
    input some Q R: qr
    input some compute_uv U S V: svd
    input source destination: moveaxis movedim
    input source storage_offset size stride: set_
    input spacing dim edge_order: gradient
    input sparse_dim: to_sparse
    input split_size dim: split_copy unsafe_split
    input split_size_or_sections dim: split
    input split_sizes dim: split_with_sizes split_with_sizes_copy unsafe_split_with_sizes
    input src dim index: select_scatter
    input src dim start end step: slice_inverse slice_scatter
    input src non_blocking: copy_
    input src offset dim1 dim2: diagonal_scatter
    input src size stride storage_offset: as_strided_scatter
    input start_dim end_dim: flatten
    input target log_input full eps reduction: torch.poisson_nll_loss
    input target log_input full size_average eps reduce reduction: poisson_nll_loss
    input target margin reduction: torch.hinge_embedding_loss
    input target margin size_average reduce reduction: hinge_embedding_loss
    input target p margin weight reduction: torch.multi_margin_loss
    input target p margin weight size_average reduce reduction: multi_margin_loss
    input target reduction: torch.l1_loss torch.mse_loss torch.multilabel_margin_loss torch.soft_margin_loss
    input target reduction beta: torch.smooth_l1_loss
    input target reduction delta: torch.huber_loss
    input target reduction delta weight: huber_loss
    input target reduction log_target: torch.kl_div
    input target size_average reduce reduction: multilabel_margin_loss soft_margin_loss
    input target size_average reduce reduction beta: smooth_l1_loss
    input target size_average reduce reduction log_target: kl_div
    input target size_average reduce reduction weight: l1_loss mse_loss
    input target var full eps reduction: gaussian_nll_loss
    input target weight pos_weight reduction: torch.binary_cross_entropy_with_logits
    input target weight reduction: torch.binary_cross_entropy
    input target weight reduction ignore_index: torch.nll_loss
    input target weight size_average ignore_index reduce reduction: nll_loss
    input target weight size_average ignore_index reduce reduction label_smoothing: cross_entropy
    input target weight size_average reduce reduction: binary_cross_entropy multilabel_soft_margin_loss
    input target weight size_average reduce reduction pos_weight: binary_cross_entropy_with_logits
    input tau: linalg.householder_product
    input tensor1 tensor2 value: addcdiv addcmul
    input the_template: resize_as_sparse_
    input the_template memory_format: resize_as
    input threshold value: torch.threshold
    input threshold value inplace: _threshold threshold
    input tol hermitian: linalg.matrix_rank
    input upper: cholesky cholesky_inverse linalg.cholesky
    input upper check_errors L info: linalg.cholesky_ex
    input upscale_factor: pixel_shuffle
    input value: fill
    input values: heaviside
    input vec: mv
    input vec1 vec2 beta alpha: addr
    input vec2: ger outer
    input weight: prelu
    input weight bias: linear
    input weight bias N C HxW group eps: native_group_norm
    input weight bias mean invstd eps: batch_norm_elemt
    input weight bias pad: conv_tbc
    input weight bias running_mean running_var training momentum eps: native_batch_norm
    input weight bias running_mean running_var training momentum eps cudnn_enabled: torch.batch_norm
    input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled: torch.instance_norm
    input weight bias stride padding dilation groups: conv1d conv2d conv3d
    input weight bias stride padding dilation transposed output_padding groups: convolution
    input weight bias stride padding output_padding groups dilation: conv_transpose1d conv_transpose2d
        conv_transpose3d
    input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights
        include_last_offset padding_idx: embedding_bag
    input weight padding_idx max_norm norm_type scale_grad_by_freq sparse: embedding
    input weights minlength: bincount
    input y dim: linalg.vecdot
    input1 input2 target margin reduction: torch.cosine_embedding_loss torch.margin_ranking_loss
    input1 input2 target margin size_average reduce reduction: cosine_embedding_loss margin_ranking_loss
    input1 input2 weight bias: bilinear
    log_probs targets input_lengths target_lengths blank reduction zero_infinity: ctc_loss
    logits tau hard eps dim: gumbel_softmax
    mat1 mat2: hspmm
    matrices: chain_matmul
    mean std: normal
    n input: polygamma special.polygamma
    outputs inputs grad_outputs retain_graph create_graph allow_unused: grad
    query key value attn_mask dropout_p is_causal scale enable_gqa: scaled_dot_product_attention
    query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn
        dropout_p out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask
        use_separate_proj_weight q_proj_weight k_proj_weight v_proj_weight static_k static_v
        average_attn_weights is_causal: multi_head_attention_forward
    real imag: complex
    size qtensor dtype memory_format: empty_quantized
    sorted_sequence input out_int32 right side sorter: searchsorted
    start end: range
    start end steps base dtype: logspace
    start end steps dtype: linspace
    tensors: block_diag broadcast_tensors cartesian_prod column_stack dstack hstack linalg.multi_dot row_stack
        vstack
    tensors dim: cat concat concatenate stack
    tensors indexing: meshgrid
    theta size align_corners: affine_grid affine_grid_generator
    v pow dim: norm_except_dim
    weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx:
        torch.embedding_bag
    weight indices padding_idx scale_grad_by_freq sparse: torch.embedding
    x1 x2 dim eps: cosine_similarity
    x1 x2 p compute_mode: cdist
    x1 x2 p eps keepdim: pairwise_distance
    y input dim: cumulative_trapezoid trapezoid trapz
    """)
    for name in names
}
ALIASES = {
    name: tuple(others)
    for name, others in _entries("""
    abs: absolute
    acos: arccos
    acosh: arccosh
    asin: arcsin
    asinh: arcsinh
    atan: arctan
    atan2: arctan2
    atanh: arctanh
    cat: concat concatenate
    clamp: clip
    digamma: special.digamma special.psi
    div: divide
    erf: special.erf
    erfc: special.erfc
    erfinv: special.erfinv
    exp2: special.exp2
    expm1: special.expm1
    ge: greater_equal
    gt: greater
    i0: special.i0
    igamma: special.gammainc
    igammac: special.gammaincc
    le: less_equal
    lgamma: special.gammaln
    linalg.det: det
    linalg.householder_product: orgqr
    linalg.inv: inverse
    linalg.matrix_power: matrix_power
    log1p: special.log1p
    log_softmax: special.log_softmax
    logit: special.logit
    logsumexp: special.logsumexp
    lt: less
    mH: adjoint
    matmul: linalg.matmul
    matrix_exp: linalg.matrix_exp
    movedim: moveaxis
    mul: multiply
    mvlgamma: special.multigammaln
    ne: not_equal
    neg: negative
    outer: ger
    round: special.round
    sigmoid: special.expit
    sinc: special.sinc
    softmax: special.softmax
    sub: subtract
    transpose: swapaxes swapdims
    trunc: fix
    vstack: row_stack
    xlogy: special.xlogy
    """)
}
POINTWISE = _words("""
    abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip clone
    conj_physical copysign cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2 expm1 float_power floor
    fmax fmin fmod frac frexp gcd ge gelu gt hardshrink hardsigmoid hardtanh heaviside hypot i0 igamma igammac
    isfinite isinf isnan isneginf isposinf lcm ldexp le leaky_relu lerp lgamma log log10 log1p log2 logaddexp
    logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum mish mul
    mvlgamma nan_to_num ne neg nextafter polygamma positive pow rad2deg reciprocal relu relu6 remainder round
    rrelu rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special.airy_ai
    special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t
    special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.entr
    special.erfcx special.hermite_polynomial_h special.hermite_polynomial_he special.i0e special.i1 special.i1e
    special.laguerre_polynomial_l special.legendre_polynomial_p special.log_ndtr special.modified_bessel_i0
    special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1 special.ndtri
    special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
    special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
    special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.xlog1py special.zeta sqrt square
    sub tan tanh threshold true_divide trunc where xlogy
""")
REFUTED = {
    "pointwise": {
        "equal": "one truth value for all elements",
        "max": "element by element for two operands; a reduction for one",
        "min": "element by element for two operands; a reduction for one",
    }
}
VIEWS = _words("""
    adjoint as_strided as_tensor broadcast_to ccol_indices chunk coalesce col_indices conj contiguous cpu
    crow_indices cuda detach diagonal dsplit expand expand_as flatten hsplit imag indices linalg.diagonal mH mT
    moveaxis movedim narrow permute pin_memory positive ravel real reshape reshape_as resolve_conj resolve_neg
    row_indices select slice_inverse split split_with_sizes squeeze swapaxes swapdims t tensor_split to transpose
    unbind unflatten unfold unsqueeze values view view_as view_as_complex view_as_real vsplit
""")
SEEDED = _words("""
    alpha_dropout bernoulli binomial cauchy_ dropout exponential_ feature_alpha_dropout feature_dropout geometric_
    gru log_normal_ lstm multinomial native_dropout normal poisson rand_like randint_like randn_like random
    rnn_relu rnn_tanh rrelu scaled_dot_product_attention uniform_
""")
