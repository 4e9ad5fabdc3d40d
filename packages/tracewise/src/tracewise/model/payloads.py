"""Payload text on demand, from where the record says that it lies."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tracewise.model.entities import Record, Run
from tracewise.read.repair import repaired


class Payloads:
    """Reads payloads of a run's records; a context manager, because it keeps the logs open."""

    def __init__(self, run: Run) -> None:
        self._paths = {file.number: Path(file.path) for file in run.files}
        self._open: dict[int, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._open.values():
            log.close()
        self._open.clear()

    def read(self, record: Record, limit: int | None = None) -> bytes:
        """The payload without TABs, at most ``limit`` bytes of it."""
        if not record.payload_length:
            return b""
        if record.flags and "huge" not in record.flags:
            return self._repaired(record)[:limit]
        raw = self._bytes(record.file, record.payload_offset, record.payload_length)
        raw = raw if limit is None or len(raw) <= 2 * limit + 2 else raw[: 2 * limit + 2]
        return raw.removesuffix(b"\n").removeprefix(b"\t").replace(b"\n\t", b"\n")[:limit]

    def text(self, record: Record, limit: int | None = None) -> str:
        """The payload as text, with U+FFFD for what is no UTF-8."""
        return self.read(record, limit).decode("utf-8", "replace")

    def head(self, record: Record) -> bytes:
        """The head line."""
        return self._bytes(record.file, record.offset, max(record.payload_offset - record.offset, 0)).rstrip(b"\r\n")

    def _repaired(self, record: Record) -> bytes:
        region = self._bytes(record.file, record.offset, record.length)
        for piece in repaired(region, record.offset, record.line, False, lambda *_: None):
            if piece.offset == record.offset:
                return piece.payload or b""
        return b""

    def _bytes(self, file: int, offset: int, length: int) -> bytes:
        log = self._open.get(file)
        if log is None:
            log = self._open[file] = self._paths[file].open("rb")
        log.seek(offset)
        return log.read(length)
