"""Has every operator of torch's public name spaces a rule or a listed reason? Methods and foreach forms too."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from shardwise.interop.calls.op_names import op_name
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind

REASONS = {
    "a switch or a number of this process, which no tensor goes into": """
        are_deterministic_algorithms_enabled autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache
        compiled_with_cxx11_abi cudnn_is_acceptable get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype
        get_autocast_ipu_dtype get_autocast_xla_dtype get_default_device get_deterministic_debug_mode get_device_module
        get_file_path get_float32_matmul_precision get_num_interop_threads get_num_threads get_rng_state
        init_num_threads initial_seed is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled
        is_autocast_cpu_enabled is_autocast_enabled is_autocast_ipu_enabled is_autocast_xla_enabled
        is_deterministic_algorithms_warn_only_enabled is_inference_mode_enabled is_vulkan_available
        is_warn_always_enabled manual_seed prepare_multiprocessing_environment
        profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 seed set_anomaly_enabled set_autocast_cache_enabled
        set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype
        set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled
        set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode
        set_float32_matmul_precision set_flush_denormal set_num_interop_threads set_num_threads set_rng_state
        set_warn_always sym_constrain_range sym_constrain_range_for_size sym_fresh_size thread_safe_generator
        use_deterministic_algorithms _fused_sdp_choice calculate_gain
    """,
    "loads, parses or wraps functions": """
        classproperty compile fork import_ir_module import_ir_module_from_buffer merge_type_from_type_comment parse_ir
        parse_schema parse_type_comment unify_type_list vmap wait assert_int_or_pair boolean_dispatch
        handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic
    """,
    "a kernel of one library, of quantised modules or of compiled code, which no program calls": """
        choose_qparams_optimized cudnn_batch_norm fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix miopen_batch_norm miopen_convolution
        miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose miopen_depthwise_convolution
        miopen_rnn quantized_batch_norm quantized_gru_cell quantized_lstm_cell quantized_max_pool1d
        quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell slice_inverse
        cudnn_affine_grid_generator cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose cudnn_grid_sampler miopen_ctc_loss mkldnn_adaptive_avg_pool2d mkldnn_convolution
        mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer _fused_dropout
        _fused_moving_avg_obs_fq_helper
    """,
    "of quantised tensors, which carry no types": "empty_quantized quantized_gru quantized_lstm",
    "removed from torch: calling it raises": "eig lstsq matrix_rank solve symeig reinforce",
    "hands the memory to another library": "to_dlpack",
    "a Python function: what it calls is seen call by call": """
        constant dirac kaiming_normal kaiming_uniform orthogonal sparse uniform xavier_normal xavier_uniform
        bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall
    """,
}
"""Why names have no rule."""
SPACES: dict[str, Any] = {
    "torch": torch,
    "nn.functional": torch.nn.functional,
    "special": torch.special,
    "fft": torch.fft,
    "linalg": torch.linalg,
    "nn.init": torch.nn.init,
    "signal.windows": torch.signal.windows,
    "Tensor": torch.Tensor,
}


def public(space: Any) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(space)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = getattr(space, name, None)
        lists = name.startswith(("_foreach_", "_fused_"))
        if not callable(found) or inspect.isclass(found) or getattr(found, "__module__", "") == "typing":
            continue
        if lists or not name.startswith("_"):
            yield name, found


@pytest.mark.parametrize("space", SPACES)
def test_every_public_name_has_a_rule_or_a_reason(space):
    known = {name for names in REASONS.values() for name in names.split()}
    found = list(public(SPACES[space]))
    assert len(found) > 10
    assert [name for name, function in found if op_name(function).find(lookup) is None and name not in known] == []


def test_no_reason_is_given_for_what_has_a_rule_or_is_no_name():
    found = [(name, function) for space in SPACES.values() for name, function in public(space)]
    without = {name for name, function in found if op_name(function).find(lookup) is None}
    named = [name for names in REASONS.values() for name in names.split()]
    assert len(named) == len(set(named))
    assert set(named) - without == set()


def test_an_in_place_name_and_an_out_argument_have_the_rule_of_the_plain_operator():
    methods = [name for name, _ in public(torch.Tensor) if name.endswith("_")]
    assert len(methods) > 150
    for name in methods:
        own, plain = lookup(name), lookup(name.rstrip("_"))
        assert own is not None, name
        # Some in-place names are operators of their own: fill_, copy_, uniform_, requires_grad_.
        assert plain is None or own is plain or own.op == name, name


def test_every_foreach_operator_repeats_one_that_has_a_rule():
    names = [name for name, _ in public(torch) if name.startswith("_foreach_")]
    assert len(names) > 80
    repeated = {name.removeprefix("_foreach_").rstrip("_") for name in names}
    without = {name for name in repeated if lookup(name) is None and lookup(f"{name}_") is None}
    assert without == {"powsum"}
    kinds = {rule.kind for name in names if (rule := lookup(name)) is not None}
    assert kinds == {Kind.OPTIMIZER}
