"""The head line of a record and its envelope: how they are written, and values for them.

    V1122 03:55:22.973000 14650 torch/_dynamo/utils.py:2389] {"chromium_event": {}, "frame_id": 0, ...}

A payload follows as lines with one TAB before each. Source: torch 2.13, torch/_logging/_internal.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import orjson

LEVELS = b"VIWEC"
HEAD = re.compile(
    rb"[VIWEC](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) +(\d{1,40}) ([^:\n]{1,4096}):(\d{1,18})\] (?=\{)"
)
CONTEXT_KEYS = frozenset(
    (
        "rank",
        "compiled_autograd_id",
        "frame_id",
        "frame_compile_id",
        "attempt",
        "subgraph_name",
        "stack",
        "has_payload",
    )
)
DAY_US = 86_400_000_000
# A leap year, so that 29 February has a place; months are told apart, the year is found elsewhere.
DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)


@dataclass(slots=True)
class LogRecord:
    """One record as it stands in a log. ``payload`` is without TABs; ``None`` if there is none or it is too big.

    ``month``, ``day`` and ``day_us`` are what the head says; ``time_us`` is UTC since the epoch. ``strings`` is the
    table of interned texts of the record's process as it is at this record.
    """

    line: int
    offset: int
    length: int
    time_us: int
    pid: int
    path: str
    path_line: int
    kind: str
    value: Any
    envelope: dict[str, Any]
    payload: bytes | None
    payload_offset: int
    payload_length: int
    md5: str
    flags: tuple[str, ...] = ()
    strings: dict[int, str] = field(default_factory=dict)

    @property
    def is_damaged(self) -> bool:
        """Whether the payload is not what the writer wrote, as far as the checksum tells."""
        return any(flag in ("md5", "truncated", "huge", "missing_payload") for flag in self.flags)


@dataclass(slots=True)
class Head:
    """The part of a head line before the JSON."""

    month: int
    day: int
    day_us: int
    pid: int
    path: str
    path_line: int


def parse_head(match: re.Match[bytes]) -> Head:
    """The values of a head line that ``HEAD`` matched."""
    month, day, hour, minute, second, fraction, pid, path, path_line = match.groups()
    day_us = ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 1_000_000 + int(fraction)
    return Head(int(month), int(day), day_us, int(pid), path.decode("utf-8", "replace"), int(path_line))


def parse_json(text: bytes) -> tuple[Any, bool]:
    """The value of a JSON text, and whether only Python's reader took it. ValueError if neither does."""
    try:
        return orjson.loads(text), False
    except orjson.JSONDecodeError:
        try:
            return json.loads(text.decode("utf-8", "replace")), True
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def kind_of(envelope: dict[str, Any]) -> str | None:
    """The first key that is not context: what the record tells."""
    for key in envelope:
        if key not in CONTEXT_KEYS:
            return key
    # A record whose only news is its stack (old logs).
    return "stack" if "stack" in envelope else None
