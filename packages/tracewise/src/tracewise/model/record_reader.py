"""Reading of the record at hand: its fields, stacks and payload; what cannot be read is noted with its place."""

from __future__ import annotations

from typing import Any

from tracewise.model.entities import LogFile, Stack
from tracewise.model.fields import Fields, StackReader
from tracewise.read.grammar import LogRecord, parse_json


class RecordReader:
    """Reads from ``record``, which whoever goes through a file sets to each record in turn."""

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self.record: LogRecord | None = None
        self._stack_reader = StackReader(self.on_missing_string, self.on_bad_field)

    def fields(self, log: LogRecord) -> Fields:
        return Fields(log.value, self.on_bad_field)

    def stack(self, value: Any) -> Stack:
        assert self.record is not None, "a stack is read from the record at hand"
        return self._stack_reader.read(value, self.record.strings)

    def site_stack(self, fields: Fields) -> Stack:
        """The user's stack, or the whole one where torch left it empty."""
        return self.stack(fields.get("user_stack")) or self.stack(fields.get("stack"))

    def payload_text(self, log: LogRecord) -> str:
        return (log.payload or b"").decode("utf-8", "replace")

    def payload_json(self, log: LogRecord) -> Any:
        if log.payload is None:
            return None
        try:
            return parse_json(log.payload)[0]
        except ValueError:
            if not log.is_damaged:
                self.note("bad_payload")
            return None

    def note(self, reason: str) -> None:
        assert self.record is not None, "an oddity is noted of the record at hand"
        self.file.health.note(reason, self.file.name, self.record.line, (self.record.payload or b"")[:200])

    def on_bad_field(self, name: str) -> None:
        assert self.record is not None, "a field is read from the record at hand"
        kind = self.record.kind
        full = f"{kind}.{name}" if name else kind
        self.file.health.note_name("bad_field", full[:200], self.file.name, self.record.line)

    def on_missing_string(self, number: int) -> None:
        assert self.record is not None, "a text is looked up for the record at hand"
        self.file.health.note("no_strings", self.file.name, self.record.line, str(number)[:50].encode())
