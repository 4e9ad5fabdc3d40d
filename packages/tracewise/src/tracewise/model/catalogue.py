"""The kinds of record that torch writes: their fields, the language of their payload, and the page they belong to.

Source: torch 2.13 as installed. A kind that is not here is kept, shown as it stands and counted as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STACKS = "user_stack stack"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of record. ``fields`` are the known ones; empty means that any field is expected."""

    name: str
    page: str
    language: str = "text"
    fields: frozenset[str] = frozenset()


def _kind(name: str, page: str, language: str = "text", fields: str = "") -> Kind:
    return Kind(name, page, language, frozenset(fields.split()))


METRIC_FIELDS = """compile_id frame_key co_name co_filename co_firstlineno cache_size accumulated_cache_size guard_count
shape_env_guard_count graph_op_count graph_node_count graph_input_count start_time entire_frame_compile_time_s
backend_compile_time_s inductor_compile_time_s code_gen_time_s fail_type fail_reason fail_user_frame_filename
fail_user_frame_lineno non_compliant_ops compliant_custom_ops restart_reasons dynamo_time_before_restart_s stack_trace
exception_stack_trace graph_node_shapes has_guarded_code remote_cache_time_saved_s structured_logging_overhead_s
config_suppress_errors config_inline_inbuilt_nn_modules specialize_float dynamo_config compiler_config is_forward
num_triton_bundles remote_fx_graph_cache_get_time_ms remote_fx_graph_cache_put_time_ms start_time_us duration_us
dynamo_cumulative_compile_time_us aot_autograd_cumulative_compile_time_us inductor_cumulative_compile_time_us
inductor_code_gen_cumulative_compile_time_us triton_compile_time_us runtime_cudagraphify_time_us
runtime_triton_autotune_time_us dynamo_compile_time_before_restart_us distributed_ephemeral_timeout_us
structured_logging_overhead_us remote_fx_graph_cache_get_time_us remote_fx_graph_cache_put_time_us
backward_cumulative_compile_time_us end_time_us pre_grad_pass_time_us post_grad_pass_time_us joint_graph_pass_time_us
log_format_version inductor_config remote_cache_version inductor_fx_remote_cache_hit_count
inductor_fx_remote_cache_miss_count inductor_fx_remote_cache_backend_type inductor_fx_remote_cache_hit_keys
inductor_fx_remote_cache_miss_keys inductor_fx_local_cache_hit_count inductor_fx_local_cache_miss_count
aotautograd_remote_cache_hit_count aotautograd_remote_cache_miss_count aotautograd_local_cache_hit_count
aotautograd_local_cache_miss_count cuda_version triton_version feature_usage compile_time_autotune_time_us is_runtime
gc_time_us tensorify_float_attempt tensorify_float_success tensorify_float_failure guard_latency_us recompile_reason
num_graph_breaks triton_kernel_compile_times_us ir_count cudagraph_skip_reason python_version
pgo_put_remote_code_state_time_us pgo_get_remote_code_state_time_us param_numel param_bytes param_count
recompile_user_contexts inline_inbuilt_nn_modules_candidate pytorch_version inductor_provenance functorch_config
elapsed_time"""
CONFIG_FIELDS = frozenset(("dynamo_config", "inductor_config", "functorch_config", "compiler_config"))

KINDS = {
    kind.name: kind
    for kind in (
        _kind("str", "strings"),
        _kind("chromium_event", "timeline", "json"),
        _kind("artifact", "compilation", "text", "name encoding"),
        _kind("dynamo_start", "compilation", "text", "stack"),
        _kind("compilation_metrics", "compilation", "text", METRIC_FIELDS),
        _kind("bwd_compilation_metrics", "compilation", "text", METRIC_FIELDS),
        _kind("aot_autograd_backward_compilation_metrics", "compilation", "text", METRIC_FIELDS),
        _kind("dynamo_output_graph", "compilation", "python", "sizes"),
        _kind("compiled_autograd_graph", "compilation", "python"),
        _kind("optimize_ddp_split_graph", "compilation", "python"),
        _kind("optimize_ddp_split_child", "compilation", "python", "name"),
        _kind("aot_joint_graph", "compilation", "python"),
        _kind("aot_forward_graph", "compilation", "python"),
        _kind("aot_backward_graph", "compilation", "python"),
        _kind("aot_inference_graph", "compilation", "python"),
        _kind("inductor_pre_grad_graph", "compilation", "python"),
        _kind("inductor_post_grad_graph", "compilation", "python"),
        _kind("inductor_input_graph", "compilation", "python"),
        _kind("graph_dump", "compilation", "python", "name"),
        _kind("inductor_output_code", "compilation", "python", "filename file_path"),
        _kind("dump_file", "compilation", "python", "name"),
        _kind("exported_program", "export", "python"),
        _kind("export", "export"),
        _kind("dynamo_cpp_guards_str", "compilation", "guards"),
        _kind("dynamo_guards", "compilation", "json"),
        _kind("create_symbol", "shapes", "text", f"symbol val vr source {STACKS}"),
        _kind("create_unbacked_symbol", "shapes", "text", f"symbol node_id vr {STACKS}"),
        _kind("guard_added_fast", "shapes", "text", f"expr {STACKS}"),
        _kind("guard_added", "shapes", "text", f"expr prefix expr_node_id symbol_to_sources frame_locals {STACKS}"),
        _kind("symbolic_shape_specialization", "shapes", "text", f"symbol sources value reason {STACKS}"),
        _kind(
            "propagate_real_tensors", "export", "text",
            f"expr result expr_node_id symbol_to_sources frame_locals {STACKS}",
        ),
        _kind(
            "propagate_real_tensors_provenance", "export", "text",
            f"expr result expr_node_id symbol_to_sources frame_locals {STACKS}",
        ),
        _kind("guard_on_data_dependent_error", "export", "text", f"expr unhinted_expr expr_id {STACKS}"),
        _kind(
            "expression_created", "export", "text", f"method result result_id arguments argument_ids {STACKS}"
        ),
        _kind("missing_fake_kernel", "export", "text", f"op {STACKS}"),
        _kind("mismatched_fake_kernel", "export", "text", f"op reason {STACKS}"),
        _kind("describe_storage", "inputs", "text", "id describer_id size"),
        _kind("describe_tensor", "inputs"),
        _kind("describe_source", "inputs", "text", "describer_id id source"),
        _kind("link", "compilation", "text", "name url"),
        _kind("cprofile_manifold_url", "compilation", "text", "name url"),
        _kind("stack", "compilation"),
    )
}  # fmt: skip

GRAPH_ARTIFACTS = re.compile(
    r"^(before|after)_(pre_grad|joint|post_grad)_graph$|_(pre|post)_grad$|^inductor_post_grad_graph$"
    r"|^aot_inference_graph_after|^compiled_autograd_graph|^optimize_ddp|^(pre|post)_decomp_comms$|^pre_bucketing_"
    r"|^fx_bucketing_passes_|^overlap_scheduling_graph_|^make_fx_fail_partial$|^min_cut_failed_fx_graph$"
)
CODE_ARTIFACTS = re.compile(
    r"^fx_graph_runnable$|_wrapper$|^runtime_wrapper_orchestration$|^backward_(prologue|epilogue)$"
    r"|^compiled_function_(forward|backward)$|_(wrapper|kernel|header)_code$|autotune_at_compile_time_code$"
)
CACHE_ARTIFACT = re.compile(
    r"^(?P<cache>fx_graph|fx_graph_bundled|aotautograd|dynamo|precompile|triton_bundler)_cache_(?P<state>hit|miss|bypass|disabled)$"
)
CODE_STATE_ARTIFACT = re.compile(r"^(get|put)_(\w*?)_?code_state$")


def language_of(kind: str, name: str, encoding: str) -> str:
    """What a payload is written in: python, json, guards or text."""
    if kind != "artifact":
        return KINDS[kind].language if kind in KINDS else "text"
    if encoding == "json":
        return "json"
    return "python" if GRAPH_ARTIFACTS.search(name) or CODE_ARTIFACTS.search(name) else "text"
