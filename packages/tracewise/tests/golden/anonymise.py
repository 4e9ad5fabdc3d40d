"""Replaces paths in a trace log and makes its checksums again: python anonymise.py IN.log OUT.log.xz OLD=NEW ..."""

from __future__ import annotations

import hashlib
import lzma
import re
import sys
from pathlib import Path

CHECKSUM = re.compile(rb'"has_payload": "[0-9a-f]{32}"')


def anonymised(log: bytes, replacements: list[tuple[bytes, bytes]]) -> bytes:
    """The log with other paths; each record's checksum is that of its new payload."""
    for old, new in replacements:
        log = log.replace(old, new)
    records = re.split(rb"\n(?=[VIWEC]\d{4} )", log.removesuffix(b"\n"))
    return b"\n".join(_with_checksum(record) for record in records) + b"\n"


def _with_checksum(record: bytes) -> bytes:
    head, separator, body = record.partition(b"\n\t")
    if not separator:
        return record
    digest = hashlib.md5(body.replace(b"\n\t", b"\n"), usedforsecurity=False).hexdigest().encode()
    return CHECKSUM.sub(b'"has_payload": "' + digest + b'"', head) + separator + body


if __name__ == "__main__":
    source, target, *pairs = sys.argv[1:]
    replacements = [(old.encode(), new.encode()) for old, _, new in (pair.partition("=") for pair in pairs)]
    log = anonymised(Path(source).read_bytes(), replacements)
    Path(target).write_bytes(lzma.compress(log, preset=9))
