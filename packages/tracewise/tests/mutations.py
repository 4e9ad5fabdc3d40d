"""Damage done to logs at random: cut, flipped, deleted, doubled, swapped, NULs, 0xFF, huge numbers, wrong types."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

RECORD_BEGIN = re.compile(rb"^V\d{4} ", re.MULTILINE)
NUMBER = re.compile(rb'(?<=": )\d+')
WRONG_VALUES: list[Any] = [None, 0, -1, True, 1e400, 10**30, "x", [], {}, [[]], {"a": []}]


def split_records(log: bytes) -> list[bytes]:
    begins = [match.start() for match in RECORD_BEGIN.finditer(log)]
    return [log[begin:end] for begin, end in zip(begins, [*begins[1:], len(log)], strict=True)]


def cut(record: bytes, random: Random) -> bytes:
    return record[: random.randrange(len(record))] + b"\n"


def flip(record: bytes, random: Random) -> bytes:
    at = random.randrange(len(record))
    return record[:at] + bytes([record[at] ^ (1 << random.randrange(8))]) + record[at + 1 :]


def delete_line(record: bytes, random: Random) -> bytes:
    lines = record.splitlines(keepends=True)
    del lines[random.randrange(len(lines))]
    return b"".join(lines)


def double(record: bytes, random: Random) -> bytes:
    return record * 2


def swap_lines(record: bytes, random: Random) -> bytes:
    lines = record.splitlines(keepends=True)
    one, two = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def insert(what: bytes) -> Callable[[bytes, Random], bytes]:
    def mutation(record: bytes, random: Random) -> bytes:
        at = random.randrange(len(record))
        return record[:at] + what + record[at:]

    mutation.__name__ = f"insert_{what[:4]!r}"
    return mutation


def huge_number(record: bytes, random: Random) -> bytes:
    found = list(NUMBER.finditer(record))
    if not found:
        return record
    match = random.choice(found)
    return record[: match.start()] + b"9" * random.choice([20, 400, 5000]) + record[match.end() :]


def wrong_type(record: bytes, random: Random) -> bytes:
    """One field at any depth of the head gets a value of another type."""
    head, separator, body = record.partition(b"\n")
    at = head.index(b"] {") + 2
    envelope = json.loads(head[at:])
    holder: Any = envelope
    while True:
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.3:
            break
        holder = inner
    holder[key] = random.choice(WRONG_VALUES)
    return head[:at] + json.dumps(envelope).encode() + separator + body


MUTATIONS: list[Callable[[bytes, Random], bytes]] = [
    cut, flip, delete_line, double, swap_lines, insert(b"\0" * 300), insert(b"\xff\xfe"), insert(b"\nWarning: x\n"),
    insert(b"\r"), huge_number, wrong_type,
]  # fmt: skip
