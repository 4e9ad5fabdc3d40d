"""What each kind of record says, put into its compilation. One method a kind."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from tracewise.model.catalogue import CACHE_ARTIFACT, CONFIG_FIELDS
from tracewise.model.entities import (
    BreakText,
    CacheEvent,
    Compilation,
    ExportFact,
    Expression,
    Record,
    Run,
    Symbol,
    SymbolGuard,
)
from tracewise.model.fields import Fields
from tracewise.model.record_reader import RecordReader
from tracewise.read.grammar import LogRecord

MAX_LITERAL_BYTES = 1 << 20
METRIC_TEXT = 20_000
MAX_CONFIGS = 100
RECOMPILE_LIMIT = re.compile(r'"recompile_limit": (\d{1,9})\b')
INPUT_FIELDS = (
    "ndim", "dtype", "device", "size", "stride", "storage", "is_leaf", "requires_grad", "is_parameter", "is_view",
    "base", "dynamo_hint_overrides",
)  # fmt: skip
BREAK_ARTIFACTS = frozenset(
    (
        "dynamo_graph_break_reason",
        "dynamo_error",
        "eager_compile_backwards_failure",
        "fx_interpreter_error",
        "inductor_spmd_graph_mismatch",
        "invoke_subgraph_backward_duplicate",
    )
)
EXPORT_KINDS = frozenset(
    (
        "missing_fake_kernel",
        "mismatched_fake_kernel",
        "propagate_real_tensors",
        "propagate_real_tensors_provenance",
        "guard_on_data_dependent_error",
    )
)


class Contents:
    """Reads the records of one file into the compilations that they belong to, and into the run."""

    def __init__(self, run: Run, reader: RecordReader) -> None:
        self.run = run
        self._reader = reader
        self._handlers: dict[str, Callable[[LogRecord, Record, Compilation], None]] = {
            "dynamo_start": self._dynamo_start,
            "compilation_metrics": self._metrics,
            "bwd_compilation_metrics": self._backward_metrics,
            "aot_autograd_backward_compilation_metrics": self._backward_metrics,
            "artifact": self._artifact,
            "create_symbol": self._symbol,
            "create_unbacked_symbol": self._symbol,
            "guard_added": self._guard,
            "guard_added_fast": self._guard,
            "symbolic_shape_specialization": self._specialization,
            "expression_created": self._expression,
            "describe_tensor": self._tensor,
            "describe_source": self._source,
            "exported_program": self._export,
            "export": self._export,
            **dict.fromkeys(EXPORT_KINDS, self._export_fact),
        }

    def read(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        """Takes in what a record says; a kind without a method is only kept."""
        handler = self._handlers.get(log.kind)
        if handler is not None:
            handler(log, record, unit)

    def _dynamo_start(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        stack = self._reader.stack(self._reader.fields(log).get("stack"))
        unit.attempts[record.id.attempt].stack = stack
        if stack and not unit.stack:
            unit.stack = stack

    def _metrics(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        unit.metrics = _kept_metrics(fields) or {"compile_id": None}
        unit.metrics_record = record
        unit.restart_reasons = _texts_of(fields.get("restart_reasons"))
        for name in CONFIG_FIELDS:
            text = fields.get(name)
            if isinstance(text, str) and text:
                unit.configs[name] = self._config(text)
        if limit := RECOMPILE_LIMIT.search(fields.shown("dynamo_config")):
            unit.recompile_limit = int(limit[1])
        for name in ("start_time_us", "end_time_us", "duration_us", "graph_op_count"):
            fields.number(name)
        for name in ("co_name", "co_filename", "fail_type", "fail_reason"):
            fields.text(name)

    def _config(self, text: str) -> str:
        """The digest under which the run keeps a config: most compilations share one."""
        digest = hashlib.sha1(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:16]
        if len(self.run.configs) < MAX_CONFIGS:
            self.run.configs.setdefault(digest, text)
        return digest

    def _backward_metrics(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        unit.backward_metrics = _kept_metrics(self._reader.fields(log))

    def _artifact(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        name = record.name
        if name in BREAK_ARTIFACTS:
            unit.breaks.append(BreakText(name, self._reader.payload_text(log), record.id.attempt, record))
        elif match := CACHE_ARTIFACT.match(name):
            self._cache(log, record, unit, match["cache"], match["state"])
        elif name in ("recompile_reasons", "compiled_autograd_compile_reasons"):
            unit.recompile_reasons += _texts_of(self._reader.payload_text(log))
        elif name == "torch_version":
            fields = Fields(self._reader.payload_json(log), self._reader.on_bad_field)
            self.run.torch_version = fields.text("pytorch_version") or self.run.torch_version
            self.run.torch_commit = fields.text("commit") or self.run.torch_commit
        elif name == "inductor_collective_schedule":
            schedule = self._reader.payload_json(log)
            if isinstance(schedule, list):
                unit.collectives.append((record, [op for op in schedule if isinstance(op, str)]))
            elif schedule is not None:
                self._reader.note("bad_payload")

    def _cache(self, log: LogRecord, record: Record, unit: Compilation, cache: str, state: str) -> None:
        fields = Fields(self._reader.payload_json(log), self._reader.on_bad_field)
        # What the entry took to make: a hit saves it, a miss has just paid it.
        saved = fields.number("time_taken_ns")
        unit.caches.append(
            CacheEvent(
                cache,
                state,
                fields.text("key"),
                fields.shown("cache_bypass_reason") or fields.shown("cache_bypass_exception_type"),
                saved / 1000 if state == "hit" and saved is not None else None,
                record,
            )
        )

    def _symbol(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        unit.symbols.append(
            Symbol(
                fields.text("symbol"),
                fields.shown("val"),
                fields.text("vr"),
                fields.texts("source"),
                log.kind == "create_symbol",
                self._reader.site_stack(fields),
                record,
            )
        )

    def _guard(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        unit.guards.append(
            SymbolGuard(
                "guard",
                fields.text("expr"),
                "",
                "",
                fields.text("prefix"),
                _sources(fields.mapping("symbol_to_sources")),
                fields.mapping("frame_locals"),
                fields.integer("expr_node_id"),
                self._reader.site_stack(fields),
                record,
            )
        )
        # The detailed kind and the fast one tell of one guard when both are written.
        if len(unit.guards) > 1 and record.kind == "guard_added_fast":
            before = unit.guards[-2]
            if before.record.kind == "guard_added" and before.expression == unit.guards[-1].expression:
                unit.guards.pop()

    def _specialization(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        symbol = fields.text("symbol")
        sources = {symbol: fields.texts("sources")}
        unit.guards.append(
            SymbolGuard(
                "specialization",
                symbol,
                fields.shown("value"),
                fields.text("reason"),
                "",
                sources,
                {},
                None,
                self._reader.site_stack(fields),
                record,
            )
        )

    def _expression(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        result_id = fields.integer("result_id")
        if result_id is not None:
            self.run.expressions[result_id] = Expression(
                fields.text("result"),
                result_id,
                fields.text("method"),
                fields.texts("arguments"),
                fields.integers("argument_ids"),
                self._reader.site_stack(fields),
            )

    def _export_fact(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        names = set(fields.names)
        self.run.export_facts.append(
            ExportFact(
                log.kind,
                fields.text("op" if "op" in names else "expr"),
                fields.shown("result"),
                fields.shown("reason") or fields.shown("unhinted_expr"),
                fields.integer("expr_node_id" if "expr_node_id" in names else "expr_id"),
                _sources(fields.mapping("symbol_to_sources")),
                fields.mapping("frame_locals"),
                self._reader.site_stack(fields),
                record,
            )
        )

    def _export(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        self.run.export_records.append(record)

    def _tensor(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        describer, number = fields.integer("describer_id"), fields.integer("id")
        if describer is not None and number is not None:
            row = {name: value for name in INPUT_FIELDS if (value := fields.get(name)) is not None}
            unit.inputs.setdefault((describer, number), {}).update(row)

    def _source(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._reader.fields(log)
        describer, number = fields.integer("describer_id"), fields.integer("id")
        if describer is not None and number is not None:
            unit.inputs.setdefault((describer, number), {})["source"] = fields.text("source")


def _kept_metrics(fields: Fields) -> dict[str, Any]:
    """The fields that have a value, without the embedded configs and with long texts cut."""
    kept = {}
    for name in fields.names:
        value = fields.get(name)
        if value is None or name in CONFIG_FIELDS:
            continue
        kept[name] = value[:METRIC_TEXT] if isinstance(value, str) else value
    return kept


def _sources(value: dict[str, Any]) -> dict[str, list[str]]:
    """Symbol to its sources: lists in new logs, one text in old ones."""
    return {
        symbol: [s for s in sources if isinstance(s, str)] if isinstance(sources, list) else [str(sources)]
        for symbol, sources in value.items()
    }


def _texts_of(value: Any) -> list[str]:
    """A list of texts that may come as a list, as JSON of one, as Python's text of one, or as one text."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("[") and len(text) < MAX_LITERAL_BYTES:
            for read in (json.loads, ast.literal_eval):
                try:
                    value = read(text)
                    break
                except (ValueError, SyntaxError, RecursionError, MemoryError):
                    continue
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str)]
    return []
