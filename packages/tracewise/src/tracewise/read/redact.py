"""Logs without what tells who and where: home folders, user and host names, secrets. Checksums are made again.

The copy is a whole log, so that everything made from it is free of them, whatever it shows.
"""

from __future__ import annotations

import getpass
import hashlib
import re
import socket
from collections import Counter
from pathlib import Path

CHECKSUM = re.compile(rb'("has_payload": ")[0-9a-f]{32}"')
RECORD_BEGIN = re.compile(rb"\n(?=[VIWEC]\d{4} \d\d:\d\d)")
# A name that says secret, up to 8 bytes of quotes and separators, and a long word.
SECRET = re.compile(
    rb"((?:key|token|secret|password|passwd|credential)\w{0,20}[\"'\\ :=]{1,8})[A-Za-z0-9_+/.-]{32,}", re.I
)
HOME = re.compile(rb"(/home/|/Users/|C:\\\\+Users\\\\+)[A-Za-z0-9_.-]+")
ENVIRONMENT = re.compile(rb"(os\.environ\[[^\]\n]{1,200}\] = )'[^'\n]*'")
SHORTEST_NAME = 3


def redactions() -> list[tuple[str, re.Pattern[bytes], bytes]]:
    """What is replaced: its name, its pattern and what stands there instead."""
    rules = [
        ("secret", SECRET, rb"\1<redacted>"),
        ("environment value", ENVIRONMENT, rb"\1'<redacted>'"),
        ("home folder", HOME, rb"\1user"),
    ]
    for name, text in (("host name", socket.gethostname()), ("user name", _user())):
        if len(text) >= SHORTEST_NAME:
            pattern = re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(text.encode()) + rb"(?![A-Za-z0-9_])")
            rules.append((name, pattern, name.split()[0].encode()))
    return rules


def redact(source: Path, target: Path) -> Counter[str]:
    """Writes the log without them; returns how often each was replaced."""
    rules = redactions()
    counts: Counter[str] = Counter()
    with source.open("rb") as log, target.open("xb") as copy:
        rest = b""
        while True:
            chunk = log.read(8 << 20)
            *records, rest = RECORD_BEGIN.split(rest + chunk) if chunk else [rest, b""]
            for record in records:
                copy.write(_redacted(record, rules, counts) + (b"\n" if chunk else b""))
            if not chunk:
                return counts


def _redacted(record: bytes, rules: list[tuple[str, re.Pattern[bytes], bytes]], counts: Counter[str]) -> bytes:
    before = record
    for name, pattern, replacement in rules:
        record, count = pattern.subn(replacement, record)
        if count:
            counts[name] += count
    if record is before or record == before:
        return record
    # A payload that fitted its checksum fits the new one; a damaged one stays told as damaged.
    head, found, body = record.partition(b"\n\t")
    old_body = before.partition(b"\n\t")[2]
    old = CHECKSUM.search(head)
    if found and old and _digest(old_body) == old[0][-33:-1]:
        head = CHECKSUM.sub(rb"\g<1>" + _digest(body) + b'"', head)
    return head + found + body


def _digest(body: bytes) -> bytes:
    payload = body.removesuffix(b"\n").replace(b"\n\t", b"\n")
    return hashlib.md5(payload, usedforsecurity=False).hexdigest().encode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
