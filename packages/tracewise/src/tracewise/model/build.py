"""Records to the parts of a run, one file at a time: which process, compilation and attempt each belongs to."""

from __future__ import annotations

from tracewise.model.catalogue import KINDS
from tracewise.model.contents import Contents
from tracewise.model.entities import Attempt, Compilation, LogFile, Rank, Record, Run
from tracewise.model.ids import CompileId, id_of_envelope, parse_compile_id
from tracewise.model.record_reader import RecordReader
from tracewise.model.spans import SpanBuilder
from tracewise.read.grammar import LogRecord, parse_json


class FileBuilder:
    """Takes the records of one file in order; ``finish`` hands its ranks to the run."""

    def __init__(self, run: Run, file: LogFile) -> None:
        self.run = run
        self.file = file
        self.ranks: dict[tuple[int, int | None], Rank] = {}
        self._spans: dict[tuple[int, int | None], SpanBuilder] = {}
        self._key: tuple[int, int | None] = (0, None)
        self._ids: dict[CompileId, CompileId] = {}
        self._uses: dict[tuple[int, int | None], int] = {}
        self._reader = RecordReader(file)
        self._contents = Contents(run, self._reader)

    def add(self, log: LogRecord) -> None:
        """Take one record in."""
        self._reader.record = log
        self.file.records += 1
        if not self.file.started_us:
            self.file.started_us = log.time_us
        self.file.ended_us = max(self.file.ended_us, log.time_us)
        rank = log.envelope.get("rank")
        if rank is not None and (type(rank) is not int or rank < 0):
            self._reader.on_bad_field("rank")
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
                self._reader.note("bad_payload")
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
            self._reader.note(reason)
        # A compilation may have left nothing but events before its process died.
        rank = self.ranks.get(self._key)
        if not id.is_empty and (rank is None or id.compilation not in rank.compilations):
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
            self._reader.on_bad_field("")
        record = Record(
            self.file.number, log.line, log.offset, log.length, log.payload_offset, log.payload_length, log.time_us,
            log.kind, name, id, log.md5, log.flags, encoding,
        )  # fmt: skip
        unit = self._compilation(id.compilation, log)
        attempt = unit.attempts.get(id.attempt)
        if attempt is None:
            attempt = unit.attempts[id.attempt] = Attempt(id.attempt, log.time_us)
        attempt.records.append(record)
        self._contents.read(log, record, unit)

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
            self._reader.on_bad_field(name)
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
