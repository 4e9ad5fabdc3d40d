"""The page of one compilation: its texts in the order of the phases, its numbers, inputs, sizes, caches and stack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any

from tracewise.find.recompiles import Link
from tracewise.model.catalogue import CACHE_ARTIFACT, CODE_ARTIFACTS, GRAPH_ARTIFACTS
from tracewise.model.entities import Compilation, Frame, Record, Run, Span
from tracewise.report.links import Links

# The stages of the pipeline, in their order, with the texts that show each.
STAGES = (
    ("Dynamo graph", r"^dynamo_output_graph$|^compiled_autograd_graph"),
    ("DDP split", r"^optimize_ddp_split"),
    ("Before pre-grad passes", r"^before_pre_grad_graph$"),
    ("After pre-grad passes", r"^after_pre_grad_graph$|^inductor_pre_grad_graph$|_pre_grad$"),
    ("Joint graph", r"^aot_joint_graph$|^before_joint_graph$|^after_joint_graph$"),
    ("Forward graph", r"^aot_forward_graph$|^aot_inference_graph"),
    ("Backward graph", r"^aot_backward_graph$"),
    ("Before post-grad passes", r"^before_post_grad_graph$"),
    ("After post-grad passes", r"^inductor_post_grad_graph$|^after_post_grad_graph$|_post_grad$"),
    ("Output code", r"^inductor_output_code$"),
    ("Guards", r"^dynamo_cpp_guards_str$|^dynamo_guards$"),
)
STAGE_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in STAGES)
GROUPS = {
    "What": """compile_id co_name co_filename co_firstlineno frame_key is_forward is_runtime recompile_reason
        num_graph_breaks pytorch_version python_version cuda_version triton_version log_format_version""",
    "Time": """start_time_us end_time_us duration_us backend_compile_time_s inductor_compile_time_s code_gen_time_s
        dynamo_compile_time_before_restart_us dynamo_cumulative_compile_time_us
        aot_autograd_cumulative_compile_time_us inductor_cumulative_compile_time_us
        inductor_code_gen_cumulative_compile_time_us triton_compile_time_us backward_cumulative_compile_time_us
        pre_grad_pass_time_us joint_graph_pass_time_us post_grad_pass_time_us gc_time_us guard_latency_us
        structured_logging_overhead_us""",
    "Size": """guard_count shape_env_guard_count graph_op_count graph_node_count graph_input_count ir_count param_count
        param_numel param_bytes cache_size accumulated_cache_size graph_node_shapes""",
    "Failure": """fail_type fail_reason fail_user_frame_filename fail_user_frame_lineno restart_reasons
        exception_stack_trace non_compliant_ops compliant_custom_ops cudagraph_skip_reason""",
    "Caches": """inductor_fx_local_cache_hit_count inductor_fx_local_cache_miss_count
        inductor_fx_remote_cache_hit_count inductor_fx_remote_cache_miss_count aotautograd_local_cache_hit_count
        aotautograd_local_cache_miss_count aotautograd_remote_cache_hit_count aotautograd_remote_cache_miss_count
        remote_cache_time_saved_s distributed_ephemeral_timeout_us""",
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
SPANS_SHOWN = 40
VALUE_TEXT = 4000
MORE = "More"


@dataclass(slots=True)
class Text:
    """A link to a text, with what tells it from others of its name."""

    title: str
    href: str
    bytes: int
    attempt: int
    is_damaged: bool


@dataclass(slots=True)
class Stage:
    """A stage of the pipeline; without texts it did not happen."""

    name: str
    texts: list[Text] = field(default_factory=list)


@dataclass(slots=True)
class Neighbours:
    """What the page needs to know of other compilations."""

    before: Compilation | None = None
    after: Compilation | None = None
    link: Link | None = None
    problems: list[Any] = field(default_factory=list)
    provenance: list[str] = field(default_factory=list)


def page_values(run: Run, unit: Compilation, links: Links, neighbours: Neighbours, spans: list[Span]) -> dict[str, Any]:
    """The values of the template."""
    stages, others = split_texts(unit.records, links)
    first = next((text for stage in reversed(stages[:-1]) for text in stage.texts), None)
    operations = unit.metrics.get("graph_op_count")
    if unit.status == "failed" and others:
        first = next((text for text in others if text.title == "dynamo_error"), first)
    return {
        "unit": unit,
        "site": unit.site,
        "operations": operations if type(operations) is int else 0,
        "stages": stages,
        "others": others,
        "first": first or next(iter(others), None),
        "neighbours": neighbours,
        "metrics": metric_groups(unit.metrics),
        "backward_metrics": metric_groups(unit.backward_metrics),
        "inputs": [inp for _, inp in sorted(unit.inputs.items()) if "source" in inp or "dtype" in inp][:500],
        "stack": folded_stack(unit.stack),
        "spans": sorted(spans, key=lambda span: -(1e18 if span.self_us is None else span.self_us))[:SPANS_SHOWN],
        "configs": config_differences(run, unit),
    }


def split_texts(records: Iterable[Record], links: Links) -> tuple[list[Stage], list[Text]]:
    """The texts by stage, and those that belong to none."""
    stages = {name: Stage(name) for name, _ in STAGES}
    others: list[Text] = []
    for record in records:
        if not record.has_payload:
            continue
        title = record.title
        text = Text(title, links.payload(record), record.payload_length, record.id.attempt, record.is_damaged)
        stage = stage_of(title)
        (stages[stage].texts if stage else others).append(text)
    others.sort(key=lambda text: _order(text.title))
    return list(stages.values()), others


@cache
def stage_of(title: str) -> str:
    return next((name for name, pattern in STAGE_PATTERNS if pattern.search(title)), "")


@cache
def _order(title: str) -> tuple[int, str]:
    """Graphs, code, caches, the rest."""
    for number, pattern in enumerate((GRAPH_ARTIFACTS, CODE_ARTIFACTS, CACHE_ARTIFACT)):
        if pattern.search(title):
            return number, title
    return 3, title


def metric_groups(metrics: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Names and values by group, in the order of ``GROUPS``."""
    groups: dict[str, list[tuple[str, str]]] = {group: [] for group in [*GROUPS, MORE]}
    for name, value in metrics.items():
        if value is None or value == [] or value == "":
            continue
        text = value if isinstance(value, str) else repr(value)
        groups[GROUP_OF.get(name, MORE)].append((name, text[:VALUE_TEXT]))
    return [(group, rows) for group, rows in groups.items() if rows]


def folded_stack(stack: tuple[Frame, ...]) -> list[tuple[bool, list[Frame]]]:
    """Runs of frames: whether they are torch's, and the frames."""
    return [(is_torch, list(frames)) for is_torch, frames in groupby(stack, key=lambda frame: frame.is_torch)]


def config_differences(run: Run, unit: Compilation) -> list[tuple[str, str, str, str]]:
    """Config, key, value of the first compilation, value of this one, where they differ."""
    first = run.first_with_configs
    found = []
    for name, digest in sorted(unit.configs.items()):
        before = first.configs.get(name, digest) if first else digest
        if before != digest:
            found += [(name, *row) for row in _differing_keys(run.configs.get(before, ""), run.configs.get(digest, ""))]
    return found


@cache
def _differing_keys(before: str, after: str) -> list[tuple[str, str, str]]:
    try:
        old, new = json.loads(before), json.loads(after)
    except (ValueError, RecursionError):
        return [("(not readable)", "", "")]
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    keys = sorted(old.keys() | new.keys())
    return [(key, str(old.get(key))[:300], str(new.get(key))[:300]) for key in keys if old.get(key) != new.get(key)][
        :50
    ]
