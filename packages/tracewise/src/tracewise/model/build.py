"""Records to the parts of a run, one file at a time. One handler a kind; what a handler cannot read is noted."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from tracewise.model.catalogue import CACHE_ARTIFACT, CONFIG_FIELDS, KINDS, STACKS
from tracewise.model.entities import (
    Attempt,
    BreakText,
    CacheEvent,
    Compilation,
    ExportFact,
    Expression,
    LogFile,
    Rank,
    Record,
    Run,
    Stack,
    Symbol,
    SymbolGuard,
)
from tracewise.model.fields import Fields, StackReader
from tracewise.model.ids import CompileId, id_of_envelope, parse_compile_id
from tracewise.model.spans import SpanBuilder
from tracewise.read.grammar import LogRecord, parse_json

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


class FileBuilder:
    """Takes the records of one file in order; ``finish`` hands its ranks to the run."""

    def __init__(self, run: Run, file: LogFile) -> None:
        self.run = run
        self.file = file
        self.ranks: dict[tuple[int, int | None], Rank] = {}
        self._spans: dict[tuple[int, int | None], SpanBuilder] = {}
        self._key: tuple[int, int | None] = (0, None)
        self._record: LogRecord | None = None
        self._ids: dict[CompileId, CompileId] = {}
        self._uses: dict[tuple[int, int | None], int] = {}
        self._stack_reader = StackReader(self._on_missing_string, self._on_bad_field)
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

    def add(self, log: LogRecord) -> None:
        """Take one record in."""
        self._record = log
        self.file.records += 1
        if not self.file.started_us:
            self.file.started_us = log.time_us
        self.file.ended_us = max(self.file.ended_us, log.time_us)
        rank = log.envelope.get("rank")
        if rank is not None and (type(rank) is not int or rank < 0):
            self._on_bad_field("rank")
            rank = None
        if log.kind == "str":
            return
        self._key = (log.pid, rank)
        if log.kind == "chromium_event":
            self._event(log)
            return
        self._keep(log)

    def finish(self) -> None:
        """Give ranks to the run. What a process wrote before it knew its rank belongs to that rank."""
        by_pid: dict[int, list[int]] = {}
        for pid, own_rank in self.ranks.keys() | self._spans.keys():
            self.file.pids.add(pid)
            if own_rank is not None:
                by_pid.setdefault(pid, []).append(own_rank)
        numbers = {rank for ranks in by_pid.values() for rank in ranks}
        if len(numbers) > 1:
            self.file.health.note("mixed_ranks", self.file.name, 1, str(sorted(numbers)[:50]).encode())
        for key in sorted(self.ranks.keys() | self._spans.keys(), key=lambda k: (k[0], k[1] is not None, k[1] or 0)):
            pid, rank = key
            if rank is None:
                known = by_pid.get(pid, [])
                rank = known[0] if len(known) == 1 else self.file.rank if len(numbers) < 2 else None
                if rank is None and not known and len(numbers) == 1:
                    rank = next(iter(numbers))
            self._hand_over(key, rank)

    def _hand_over(self, key: tuple[int, int | None], number: int | None) -> None:
        rank = next(
            (r for r in self.run.ranks if r.number == number and (number is not None or key[0] in r.pids)), None
        )
        if rank is None:
            rank = Rank(number)
            rank.outside.rank = number
            rank.pids.append(key[0])
            rank.outside.process = rank.label
            self.run.ranks.append(rank)
        if self.file.number not in rank.files:
            rank.files.append(self.file.number)
        if key[0] not in rank.pids:
            rank.pids.append(key[0])
        spans = self._spans.get(key, SpanBuilder())
        rank.spans += spans.spans
        rank.instants += spans.instants
        part = self.ranks.get(key, Rank(number))
        for compilation in part.compilations.values():
            compilation.rank, compilation.process = number, rank.label
            mine = rank.compilations.setdefault(compilation.id, compilation)
            if mine is not compilation:
                merge(mine, compilation)
        merge(rank.outside, part.outside)
        for span in spans.spans:
            unit = rank.compilations.get(span.id)
            if unit is not None:
                start = int(span.start_us)
                unit.started_us = min(unit.started_us or start, start)
                unit.open_spans += span.dur_us is None
                if span.parent is None and span.dur_us is not None:
                    unit.span_us += span.dur_us
                    unit.ended_us = max(unit.ended_us, int(span.start_us + span.dur_us))
        for unit in rank.compilations.values():
            told = unit.metrics.get("start_time_us")
            if type(told) is int and 0 < told < 1 << 60:
                unit.started_us = told

    def _event(self, log: LogRecord) -> None:
        if log.payload is None:
            return
        try:
            event, _ = parse_json(log.payload)
        except ValueError:
            if not log.is_damaged:
                self._note("bad_payload")
            return
        builder = self._spans.get(self._key)
        if builder is None:
            builder = self._spans[self._key] = SpanBuilder()
        id = self._id(log)
        if id.is_empty and isinstance(event, dict) and isinstance(args := event.get("args"), dict):
            text = args.get("compile_id")
            id = (parse_compile_id(text) if isinstance(text, str) else None) or id
        if isinstance(event, dict) and event.get("ph") == "B" and event.get("name") == "dynamo":
            id = self._id_after_reset(log, id)
        reason = builder.add(event, id.compilation)
        if reason and not log.is_damaged:
            self._note(reason)
        # A compilation may have left nothing but events before its process died.
        if not id.is_empty:
            self._compilation(id.compilation, log)

    def _keep(self, log: LogRecord) -> None:
        kind = KINDS.get(log.kind)
        if kind is None:
            if log.kind:
                self.file.health.note_name("unknown_kind", log.kind[:200], self.file.name, log.line)
        elif kind.fields and isinstance(log.value, dict):
            for name in log.value.keys() - kind.fields:
                self.file.health.note_name("unknown_field", f"{log.kind}.{name}"[:200], self.file.name, log.line)
        id = self._id(log)
        if log.kind == "dynamo_start":
            id = self._id_after_reset(log, id)
        name, encoding = "", ""
        if isinstance(log.value, dict):
            name_value, encoding_value = log.value.get("name"), log.value.get("encoding")
            name = name_value if isinstance(name_value, str) else ""
            encoding = encoding_value if isinstance(encoding_value, str) else ""
        elif log.value is not None and kind is not None:
            self._on_bad_field("")
        record = Record(
            self.file.number, log.line, log.offset, log.length, log.payload_offset, log.payload_length, log.time_us,
            log.kind, name, id, log.md5, log.flags, encoding,
        )  # fmt: skip
        unit = self._compilation(id.compilation, log)
        attempt = unit.attempts.get(id.attempt)
        if attempt is None:
            attempt = unit.attempts[id.attempt] = Attempt(id.attempt, log.time_us)
        attempt.records.append(record)
        handler = self._handlers.get(log.kind)
        if handler is not None:
            handler(log, record, unit)

    def _compilation(self, id: CompileId, log: LogRecord) -> Compilation:
        rank = self.ranks.get(self._key)
        if rank is None:
            rank = self.ranks[self._key] = Rank(self._key[1])
        if id.is_empty:
            rank.outside.file = self.file.number
            return rank.outside
        unit = rank.compilations.get(id)
        if unit is None:
            unit = rank.compilations[id] = Compilation(id, self._key[1], self.file.number, started_us=log.time_us)
        unit.ended_us = max(unit.ended_us, log.time_us)
        return unit

    def _id(self, log: LogRecord) -> CompileId:
        id, bad = id_of_envelope(log.envelope)
        for name in bad:
            self._on_bad_field(name)
        use = self._uses.get(self._key)
        if use and not id.is_empty:
            id = id._replace(use=use)
        return self._ids.setdefault(id, id)

    def _id_after_reset(self, log: LogRecord, id: CompileId) -> CompileId:
        """The id of a compilation that begins: the next use if the one of this id is already done."""
        rank = self.ranks.get(self._key)
        unit = rank.compilations.get(id.compilation) if rank else None
        if id.attempt or unit is None or not unit.metrics:
            return id
        self._uses[self._key] = self._uses.get(self._key, 0) + 1
        return self._id(log)

    # Handlers.

    def _dynamo_start(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        stack = self._stack(self._fields(log).get("stack"))
        unit.attempts[record.id.attempt].stack = stack
        if stack and not unit.stack:
            unit.stack = stack

    def _metrics(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
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
        unit.backward_metrics = _kept_metrics(self._fields(log))

    def _artifact(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        name = record.name
        if name in BREAK_ARTIFACTS:
            unit.breaks.append(BreakText(name, self._payload_text(log), record.id.attempt, record))
        elif match := CACHE_ARTIFACT.match(name):
            self._cache(log, record, unit, match["cache"], match["state"])
        elif name in ("recompile_reasons", "compiled_autograd_compile_reasons"):
            unit.recompile_reasons += _texts_of(self._payload_text(log))
        elif name == "torch_version":
            fields = Fields(self._payload_json(log), self._on_bad_field)
            self.run.torch_version = fields.text("pytorch_version") or self.run.torch_version
            self.run.torch_commit = fields.text("commit") or self.run.torch_commit
        elif name == "inductor_collective_schedule":
            schedule = self._payload_json(log)
            if isinstance(schedule, list):
                unit.collectives.append((record, [op for op in schedule if isinstance(op, str)]))
            elif schedule is not None:
                self._note("bad_payload")

    def _cache(self, log: LogRecord, record: Record, unit: Compilation, cache: str, state: str) -> None:
        fields = Fields(self._payload_json(log), self._on_bad_field)
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
        fields = self._fields(log)
        unit.symbols.append(
            Symbol(
                fields.text("symbol"),
                fields.shown("val"),
                fields.text("vr"),
                fields.texts("source"),
                log.kind == "create_symbol",
                self._site_stack(fields),
                record,
            )
        )

    def _guard(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
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
                self._site_stack(fields),
                record,
            )
        )
        # The detailed kind and the fast one tell of one guard when both are written.
        if len(unit.guards) > 1 and record.kind == "guard_added_fast":
            before = unit.guards[-2]
            if before.record.kind == "guard_added" and before.expression == unit.guards[-1].expression:
                unit.guards.pop()

    def _specialization(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
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
                self._site_stack(fields),
                record,
            )
        )

    def _expression(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
        result_id = fields.integer("result_id")
        if result_id is not None:
            self.run.expressions[result_id] = Expression(
                fields.text("result"),
                result_id,
                fields.text("method"),
                fields.texts("arguments"),
                fields.integers("argument_ids"),
                self._site_stack(fields),
            )

    def _export_fact(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
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
                self._site_stack(fields),
                record,
            )
        )

    def _export(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        self.run.export_records.append(record)

    def _tensor(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
        describer, number = fields.integer("describer_id"), fields.integer("id")
        if describer is not None and number is not None:
            row = {name: value for name in INPUT_FIELDS if (value := fields.get(name)) is not None}
            unit.inputs.setdefault((describer, number), {}).update(row)

    def _source(self, log: LogRecord, record: Record, unit: Compilation) -> None:
        fields = self._fields(log)
        describer, number = fields.integer("describer_id"), fields.integer("id")
        if describer is not None and number is not None:
            unit.inputs.setdefault((describer, number), {})["source"] = fields.text("source")

    # Reading.

    def _fields(self, log: LogRecord) -> Fields:
        return Fields(log.value, self._on_bad_field)

    def _stack(self, value: Any) -> Stack:
        assert self._record is not None, "a stack is read from the record at hand"
        return self._stack_reader.read(value, self._record.strings)

    def _site_stack(self, fields: Fields) -> Stack:
        """The user's stack, or the whole one where torch left it empty."""
        return self._stack(fields.get("user_stack")) or self._stack(fields.get("stack"))

    def _payload_text(self, log: LogRecord) -> str:
        return (log.payload or b"").decode("utf-8", "replace")

    def _payload_json(self, log: LogRecord) -> Any:
        if log.payload is None:
            return None
        try:
            return parse_json(log.payload)[0]
        except ValueError:
            if not log.is_damaged:
                self._note("bad_payload")
            return None

    def _note(self, reason: str) -> None:
        assert self._record is not None, "an oddity is noted of the record at hand"
        self.file.health.note(reason, self.file.name, self._record.line, (self._record.payload or b"")[:200])

    def _on_bad_field(self, name: str) -> None:
        assert self._record is not None, "a field is read from the record at hand"
        kind = self._record.kind
        full = f"{kind}.{name}" if name else kind
        self.file.health.note_name("bad_field", full[:200], self.file.name, self._record.line)

    def _on_missing_string(self, number: int) -> None:
        assert self._record is not None, "a text is looked up for the record at hand"
        self.file.health.note("no_strings", self.file.name, self._record.line, str(number)[:50].encode())


def merge(mine: Compilation, other: Compilation) -> None:
    """Adds what another file or process part tells of the same compilation."""
    for number, attempt in other.attempts.items():
        known = mine.attempts.setdefault(number, attempt)
        if known is not attempt:
            known.records += attempt.records
            known.stack = known.stack or attempt.stack
    mine.stack = mine.stack or other.stack
    if other.metrics:
        mine.metrics, mine.metrics_record = other.metrics, other.metrics_record
        mine.restart_reasons = other.restart_reasons
    mine.backward_metrics = mine.backward_metrics or other.backward_metrics
    for name in ("recompile_reasons", "breaks", "caches", "symbols", "guards", "collectives"):
        getattr(mine, name).extend(getattr(other, name))
    mine.inputs.update(other.inputs)
    mine.started_us = min(filter(None, (mine.started_us, other.started_us)), default=0)
    mine.ended_us = max(mine.ended_us, other.ended_us)


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


assert STACKS.split() == ["user_stack", "stack"], "_site_stack reads these two"
