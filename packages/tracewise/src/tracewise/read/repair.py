"""Records out of a region that is not as the grammar says: foreign lines, holes, CR LF, mixed processes, cut ends.

The checksum of a payload is the judge: a guess about which lines belong to it is taken only if the checksum fits.

    V.. A {"dump_file": .., "has_payload": "<md5 of 'one\\ntwo'>"}     A: one + two fits when the warning is left out,
    <TAB>one                                                          so the record is whole and "mended" is noted
    UserWarning: something on stderr
    <TAB>two
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from tracewise.read.grammar import HEAD, Head, parse_head, parse_json

Note = Callable[[str, int, bytes], None]
# Limits of the search for the owner of mixed lines.
MIXED_LINES = 4000
MIXED_RUNS = 8


@dataclass(slots=True)
class Piece:
    """A record before kind and time are known; ``flags`` name the oddities that concern it."""

    offset: int
    line: int
    length: int
    head: Head
    envelope: dict[str, Any]
    payload: bytes | None
    flags: tuple[str, ...]
    payload_offset: int = 0
    payload_length: int = 0
    lines: list[bytes] = field(default_factory=list)
    foreign: list[tuple[int, bytes]] = field(default_factory=list)
    has_cr: bool = False

    @property
    def md5(self) -> str | None:
        md5 = self.envelope.get("has_payload")
        return md5 if isinstance(md5, str) else None

    def fits(self, payload: bytes) -> bool:
        return self.md5 is not None and hashlib.md5(payload, usedforsecurity=False).hexdigest() == self.md5


def repaired(region: bytes, offset: int, line: int, at_end: bool, note: Note) -> Iterator[Piece]:
    """The pieces in ``region`` in order. ``at_end``: the file ends with it."""
    pieces = _split(region, offset, line, at_end, note)
    _settle_mixed(pieces, note)
    for number, piece in enumerate(pieces):
        if piece.payload is None:
            _settle(piece, at_end and number == len(pieces) - 1, note)
        yield piece


def _split(region: bytes, offset: int, line: int, at_end: bool, note: Note) -> list[Piece]:
    """Heads with the lines that follow each; what is neither is noted."""
    pieces: list[Piece] = []
    lines = region.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, text in enumerate(lines):
        here, where = line + number, offset
        offset += len(text) + 1
        if text.startswith(b"\t"):
            if pieces:
                pieces[-1].lines.append(text[1:])
                pieces[-1].length += len(text) + 1
                pieces[-1].payload_length += len(text) + 1
            else:
                note("not_a_record", here, text)
            continue
        if not text.strip(b"\r"):
            if pieces:
                pieces[-1].length += len(text) + 1
                pieces[-1].payload_length += len(text) + 1
            continue
        is_cut = at_end and number == len(lines) - 1
        foreign: list[tuple[int, bytes]] = []
        found = _heads(text, where, here, is_cut, foreign, note)
        if pieces:
            pieces[-1].foreign += foreign
        else:
            for foreign_line, junk in foreign:
                note("not_a_record", foreign_line, junk)
        pieces += found
        if not found and pieces:
            pieces[-1].length += len(text) + 1
            pieces[-1].payload_length += len(text) + 1
    return pieces


def _heads(
    text: bytes, offset: int, line: int, is_cut: bool, foreign: list[tuple[int, bytes]], note: Note
) -> list[Piece]:
    """The records whose heads stand on this line: none, one, or several where a line was cut short."""
    found: list[Piece] = []
    begins = [match.start() for match in HEAD.finditer(text)]
    if not begins or text[: begins[0]].strip(b"\0"):
        junk = (text[: begins[0]] if begins else text).strip(b"\0\r")
        if junk and is_cut and not begins:
            note("truncated", line, junk)
        elif junk:
            foreign.append((line, junk))
    if b"\0" in text:
        note("nul", line, text)
    if not begins:
        return found
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        match = HEAD.match(text, begin)
        assert match is not None, "finditer found it"
        json_text = text[match.end() : end].rstrip(b"\0")
        try:
            # Raw TABs in the text stand for a head that was inside of a string; JSON refuses them by itself.
            envelope, is_python_json = parse_json(json_text)
        except ValueError:
            envelope, is_python_json = None, False
        if not isinstance(envelope, dict):
            whole = _whole_line(text, match)
            if whole is not None:
                envelope, is_python_json, end = *whole, len(text)
            else:
                note("truncated" if is_cut and not json_text.endswith(b"}") else "bad_json", line, text[begin:end])
                envelope = {"": json_text.decode("utf-8", "replace")}
        if is_python_json:
            note("python_json", line, text[begin:end])
        piece = Piece(offset + begin, line, end - begin + 1, parse_head(match), envelope, None, ())
        piece.payload_offset = offset + end + 1
        piece.has_cr = text.endswith(b"\r")
        found.append(piece)
        if end == len(text):
            break
    return found


def _whole_line(text: bytes, match: re.Match[bytes]) -> tuple[dict[str, Any], bool] | None:
    """The JSON up to the line's end, for a head whose strings hold something that looks like a head."""
    try:
        envelope, is_python_json = parse_json(text[match.end() :])
    except ValueError:
        return None
    return (envelope, is_python_json) if isinstance(envelope, dict) else None


def _candidates(piece: Piece) -> Iterator[tuple[bytes, str]]:
    """Payloads that the lines may stand for, and the oddity that each means."""
    joined = b"\n".join(piece.lines)
    yield joined, "mended" if piece.foreign else ""
    if piece.has_cr and all(text.endswith(b"\r") for text in piece.lines[:-1]):
        yield b"\n".join(text.removesuffix(b"\r") for text in piece.lines), "crlf"
    if b"\0" in joined:
        yield joined.replace(b"\0", b""), "mended"


def _settle(piece: Piece, is_cut: bool, note: Note) -> None:
    """Gives the piece its payload, or the flags that say why there is no whole one."""
    text = piece.head.path.encode()
    if not piece.lines:
        _note_foreign(piece, note)
        if piece.envelope.get("has_payload") is not None:
            flag = "truncated" if is_cut else "missing_payload"
            note(flag, piece.line, text)
            piece.flags = (flag,)
        elif piece.has_cr:
            note("crlf", piece.line, text)
        return
    for payload, reason in _candidates(piece):
        if piece.fits(payload):
            piece.payload = payload
            if reason:
                note(reason, piece.line, payload)
                piece.flags = (reason,)
            return
    _note_foreign(piece, note)
    piece.payload = b"\n".join(piece.lines)
    flag = "stray_payload" if piece.envelope.get("has_payload") is None else "truncated" if is_cut else "md5"
    note(flag, piece.line, piece.payload)
    piece.flags = (flag,)


def _note_foreign(piece: Piece, note: Note) -> None:
    for line, junk in piece.foreign:
        note("not_a_record", line, junk)


def _settle_mixed(pieces: list[Piece], note: Note) -> None:
    """Finds the owners of payload lines where several processes wrote at once."""
    open_pieces = [p for p in pieces if p.md5 is not None and not any(p.fits(text) for text, _ in _candidates(p))]
    runs = [(number, p.lines) for number, p in enumerate(pieces) if p.lines and (p in open_pieces or p.md5 is None)]
    if len({p.head.pid for p in pieces}) < 2 or sum(len(lines) for _, lines in runs) > MIXED_LINES:
        return
    for piece in open_pieces:
        owned = _find_owned(piece, [lines for _, lines in runs][-MIXED_RUNS:])
        if owned is not None:
            payload, runs_left = owned
            piece.payload, piece.flags = payload, ("interleaved",)
            note("interleaved", piece.line, payload)
            runs = [(number, lines) for (number, _), lines in zip(runs[-MIXED_RUNS:], runs_left, strict=True)]
    if any("interleaved" in piece.flags for piece in pieces):
        for number, lines in runs:
            pieces[number].lines = lines


def _find_owned(piece: Piece, runs: list[list[bytes]]) -> tuple[bytes, list[list[bytes]]] | None:
    """The payload of ``piece`` among the runs and the runs without it: whole runs, then a part of one more.

    A part is the beginning of a run: who wrote first is at its front, because his lines are taken away in turn.
    """
    indices = [i for i, lines in enumerate(runs) if lines]
    for count in range(len(indices)):
        for whole in combinations(indices, count):
            for last in indices:
                if whole and last <= whole[-1]:
                    continue
                digest = hashlib.md5(usedforsecurity=False)
                taken: list[bytes] = [text for i in whole for text in runs[i]]
                digest.update(b"\n".join(taken))
                for number, text in enumerate(runs[last]):
                    digest.update(b"\n" + text if taken else text)
                    taken.append(text)
                    if digest.hexdigest() == piece.md5:
                        left = [[] if i in whole else lines for i, lines in enumerate(runs)]
                        left[last] = runs[last][number + 1 :]
                        return b"\n".join(taken), left
    return None
