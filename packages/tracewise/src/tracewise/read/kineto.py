"""Profiler traces (Chrome-trace JSON of torch.profiler), event by event: files of several GB stay on disk."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tracewise.read.archive import InputError
from tracewise.read.source import SourceFile

CHUNK_BYTES = 1 << 22
MAX_HEAD = 64 << 20
MAX_EVENT = 64 << 20
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
BETWEEN = re.compile(r"[\s,]*")


@dataclass(slots=True)
class ProfilerTrace:
    """What stands around the events. ``is_cut`` after reading: the file ends inside of its events."""

    source: SourceFile
    head: dict[str, Any] = field(default_factory=dict)
    is_cut: bool = False
    damaged: int = 0

    @property
    def rank(self) -> int | None:
        told = self.distributed.get("rank")
        return told if type(told) is int and told >= 0 else self.source.rank

    @property
    def distributed(self) -> dict[str, Any]:
        found = self.head.get("distributedInfo")
        return found if isinstance(found, dict) else {}

    @property
    def base_ns(self) -> int:
        """What is added to the times of the events to get the epoch's."""
        base = self.head.get("baseTimeNanoseconds")
        return base if type(base) is int else 0

    def events(self) -> Iterator[dict[str, Any]]:
        """The events in the order of the file; ``head`` is known from the first on. InputError if it has none."""
        decoder = json.JSONDecoder()
        decode = codecs.getincrementaldecoder("utf-8")("replace")
        with self.source.path.open("rb") as file:
            text, position = self._read_head(file, decode)
            while True:
                position = BETWEEN.match(text, position).end()  # type: ignore[union-attr]  # it matches anything
                try:
                    if position < len(text) and text[position] == "]":
                        return
                    event, position = decoder.raw_decode(text, position)
                except (ValueError, RecursionError):
                    more = file.read(CHUNK_BYTES)
                    if more and len(text) - position < MAX_EVENT:
                        text, position = text[position:] + decode.decode(more), 0
                        continue
                    self.is_cut = True
                    return
                if isinstance(event, dict):
                    yield event
                else:
                    self.damaged += 1

    def _read_head(self, file: Any, decode: codecs.IncrementalDecoder) -> tuple[str, int]:
        """Reads up to the first event; the text read and where that event begins."""
        text = ""
        while len(text) < MAX_HEAD:
            data = file.read(CHUNK_BYTES)
            text += decode.decode(data)
            if match := EVENTS.search(text):
                try:
                    head = json.loads(text[: match.start()].rstrip().rstrip(",") + "}")
                    self.head = head if isinstance(head, dict) else {}
                except (ValueError, RecursionError):
                    self.damaged += 1
                return text, match.end()
            if not data:
                break
        raise InputError(f"{self.source.name}: not a profiler trace: it has no traceEvents")
