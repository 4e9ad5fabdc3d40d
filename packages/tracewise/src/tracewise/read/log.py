"""The pass over one log: bytes to records in file order, with checksums tested and time in UTC.

A record ends where a line begins with a level letter, and nearly all levels are V: the pass looks for LF V, tests what
lies between against grammar and checksum, and leaves everything that does not fit to ``repair``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tracewise.read.clock import Clock, find_clock
from tracewise.read.grammar import HEAD, LogRecord, kind_of, parse_head, parse_json
from tracewise.read.health import Health
from tracewise.read.repair import Piece, repaired

CHUNK_BYTES = 4 << 20
HUGE_BYTES = 128 << 20
TAB, LF = b"\t\n"
# Records of at most so many processes are looked at together when their payload lines are mixed.
OPEN_RECORDS = 8


class LogReader:
    """Iterates over the records of one plain file. Notes every oddity in ``health`` and never raises on content."""

    def __init__(
        self,
        path: Path,
        health: Health,
        *,
        name: str = "",
        chunk_bytes: int = CHUNK_BYTES,
        huge_bytes: int = HUGE_BYTES,
    ) -> None:
        self.path = path
        self.name = name or path.name
        self.health = health
        self.strings: dict[int, dict[int, str]] = {}
        self.clock: Clock | None = None
        self._chunk_bytes = chunk_bytes
        self._huge_bytes = huge_bytes
        self._previous: tuple[bytes, str] = (b"", "")

    def __iter__(self) -> Iterator[LogRecord]:
        with self.path.open("rb") as log:
            self.clock = find_clock(log, self.path)
            if self.clock.is_guessed:
                self.health.note("year_guessed", self.name, 1)
            for record in self._records(log):
                self.health.records += 1
                yield record

    def _records(self, log: BinaryIO) -> Iterator[LogRecord]:
        buffer, base, line = b"", 0, 1
        begin = scanned = 0  # in the buffer: of the region at hand, and where the search goes on
        bad_begin, bad_line, bad_heads = -1, 0, 0  # neighbours that did not fit, kept for repair
        is_last = False
        while True:
            end = buffer.find(b"\nV", scanned)
            if end < 0 and not is_last:
                if len(buffer) - begin > self._huge_bytes:
                    if bad_begin >= 0:
                        yield from self._repair(buffer[bad_begin:begin], base + bad_begin, bad_line, False)
                        bad_begin = -1
                    record, rest, skipped, lines = self._huge(log, buffer[begin:], base + begin, line)
                    if record is not None:
                        yield record
                    base, line = base + begin + skipped, line + lines
                    buffer, begin, scanned = rest, 0, 0
                    continue
                kept = begin if bad_begin < 0 else bad_begin
                scanned = max(len(buffer) - 1, begin) - kept
                begin -= kept
                bad_begin = -1 if bad_begin < 0 else 0
                base += kept
                chunk = log.read(self._chunk_bytes)
                is_last = not chunk
                buffer = buffer[kept:] + chunk
                continue
            end = len(buffer) if end < 0 else end + 1
            if begin >= end:
                break
            record = self._fast(buffer, begin, end, base, line)
            if record is not None:
                if bad_begin >= 0:
                    yield from self._repair(buffer[bad_begin:begin], base + bad_begin, bad_line, False)
                    bad_begin = -1
                if not self._is_duplicate(record, buffer[begin : record.payload_offset - base]):
                    yield record
            else:
                if bad_begin < 0:
                    bad_begin, bad_line, bad_heads = begin, line, 0
                bad_heads += 1
                if bad_heads >= OPEN_RECORDS or end - bad_begin > self._huge_bytes:
                    at_end = is_last and end == len(buffer)
                    yield from self._repair(buffer[bad_begin:end], base + bad_begin, bad_line, at_end)
                    bad_begin = -1
            line += buffer.count(b"\n", begin, end)
            begin = scanned = end
        if bad_begin >= 0:
            yield from self._repair(buffer[bad_begin:], base + bad_begin, bad_line, True)

    def _fast(self, buffer: bytes, begin: int, end: int, base: int, line: int) -> LogRecord | None:
        """The record in ``buffer[begin:end]`` if it is whole and as the grammar says."""
        match = HEAD.match(buffer, begin)
        if match is None:
            return None
        head_end = buffer.find(b"\n", begin, end)
        if head_end < 0:
            head_end = end
        try:
            envelope, is_python_json = parse_json(buffer[match.end() : head_end])
        except ValueError:
            return None
        if not isinstance(envelope, dict):
            return None
        md5 = envelope.get("has_payload")
        payload = None
        if head_end + 1 < end:
            if not isinstance(md5, str) or buffer[head_end + 1] != TAB:
                return None
            payload = buffer[head_end + 2 : end - 1 if buffer[end - 1] == LF else end].replace(b"\n\t", b"\n")
            if hashlib.md5(payload, usedforsecurity=False).hexdigest() != md5:
                return None
        elif md5 is not None:
            return None
        if is_python_json:
            self.health.note("python_json", self.name, line, buffer[begin:head_end])
        piece = Piece(begin + base, line, end - begin, parse_head(match), envelope, payload, ())
        piece.payload_offset = base + head_end + 1
        piece.payload_length = end - head_end - 1 if head_end < end else 0
        return self._record(piece, buffer[begin:head_end])

    def _repair(self, region: bytes, offset: int, line: int, at_end: bool) -> Iterator[LogRecord]:
        for piece in repaired(
            region, offset, line, at_end, lambda *args: self.health.note(args[0], self.name, *args[1:])
        ):
            head_line = region[piece.offset - offset : max(piece.payload_offset - offset, piece.offset - offset)]
            record = self._record(piece, head_line)
            if record is not None and not self._is_duplicate(record, head_line):
                yield record

    def _record(self, piece: Piece, head_line: bytes) -> LogRecord | None:
        kind = kind_of(piece.envelope)
        if kind is None:
            self.health.note("no_kind", self.name, piece.line, head_line)
            kind = ""
        assert self.clock is not None, "the clock is found before the first record is read"
        time_us, went_back = self.clock.utc_us(piece.head)
        if went_back:
            self.health.note("clock_back", self.name, piece.line, head_line)
        value = piece.envelope.get(kind)
        strings = self.strings.setdefault(piece.head.pid, {})
        if kind == "str":
            self._intern(strings, value, piece.line, head_line)
        md5 = piece.envelope.get("has_payload")
        return LogRecord(
            piece.line,
            piece.offset,
            piece.length,
            time_us,
            piece.head.pid,
            piece.head.path,
            piece.head.path_line,
            kind,
            value,
            piece.envelope,
            piece.payload,
            piece.payload_offset,
            piece.payload_length,
            md5 if isinstance(md5, str) else "",
            piece.flags,
            strings,
        )

    def _intern(self, strings: dict[int, str], value: Any, line: int, head_line: bytes) -> None:
        match value:
            case [str(text), int(number), *_]:
                strings[number] = text
            case _:
                self.health.note_name("bad_field", "str", self.name, line, head_line)

    def _is_duplicate(self, record: LogRecord, head_line: bytes) -> bool:
        key = (head_line.rstrip(b"\r\n"), record.md5)
        if key == self._previous:
            self.health.note("duplicate", self.name, record.line, head_line)
            return True
        self._previous = key
        return False

    def _huge(self, log: BinaryIO, buffer: bytes, offset: int, line: int) -> tuple[LogRecord | None, bytes, int, int]:
        """A record over the limit: its checksum is made piece by piece, its payload stays in the file.

        Returns the record, the bytes read beyond it, how many bytes and how many lines it has.
        """
        self.health.note("huge", self.name, line, buffer[:200])
        match = HEAD.match(buffer)
        head_end = buffer.find(b"\n")
        envelope: Any = None
        if match is not None and 0 <= head_end <= self._huge_bytes:
            try:
                envelope, _ = parse_json(buffer[match.end() : head_end])
            except ValueError:
                self.health.note("bad_json", self.name, line, buffer[:200])
        head_length = head_end + 1 if head_end >= 0 else 0
        digest = hashlib.md5(usedforsecurity=False)
        lines, length, pending = buffer.count(b"\n", 0, head_length), head_length, buffer[head_length:]
        is_first = True
        while True:
            end = pending.find(b"\nV")
            chunk = b"" if end >= 0 else log.read(self._chunk_bytes)
            is_whole = end >= 0 or not chunk
            # The last byte stays back, because an LF only counts with what follows it.
            cut = end + 1 if end >= 0 else len(pending) if is_whole else max(len(pending) - 1, 0)
            part, pending = pending[:cut], pending[cut:] + chunk
            lines += part.count(b"\n")
            length += len(part)
            if is_first and part:
                part, is_first = part.removeprefix(b"\t"), False
            if is_whole:
                part = part.removesuffix(b"\n")
            elif pending[:1] == b"\t" and part.endswith(b"\n"):
                pending = pending[1:]
                length, lines = length + 1, lines
            digest.update(part.replace(b"\n\t", b"\n"))
            if is_whole:
                break
        if not isinstance(envelope, dict) or match is None:
            return None, pending, length, lines
        flags = ("huge",) if digest.hexdigest() == envelope.get("has_payload") else ("huge", "md5")
        if "md5" in flags:
            self.health.note("md5", self.name, line, buffer[:200])
        piece = Piece(offset, line, length, parse_head(match), envelope, None, flags)
        piece.payload_offset, piece.payload_length = offset + head_length, length - head_length
        return self._record(piece, buffer[:head_length]), pending, length, lines
