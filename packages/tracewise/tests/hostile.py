"""Logs whose every text is an attack: on HTML, on attributes, on scripts, on templates, on readers' eyes, on paths."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from .mutations import split_records

ATTACKS = (
    "<script>window.hurt=1</script>",
    "<img src=x onerror=window.hurt=1>",
    "\"><svg onload=window.hurt=1>",
    "' onmouseover='window.hurt=1",
    "javascript:window.hurt=1",
    "</script><script>window.hurt=1</script>",
    "]]><b>",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "</pre></title></textarea><iframe src=javascript:window.hurt=1>",
    "\u202egnp.exe\u2066",
    "\u2028\u2029\x00\x1b[31m",
    "../../../../hurt",
    "..\\..\\hurt",
    "/etc/passwd",
    "CON",
    "n" * 300,
)  # fmt: skip
# Texts that say what a record is; changed, the record would only be unknown.
STRUCTURE = {"encoding", "ph", "ts", "cat"}


def attacked(log: bytes, *, with_names: bool, attack: int = 0) -> bytes:
    """The log with an attack behind each of its texts. ``with_names``: artifacts and events lose their names, too."""
    out = []
    count = attack

    def spoil(value: Any, key: str = "") -> Any:
        nonlocal count
        if isinstance(value, str):
            if key in STRUCTURE or (key == "name" and not with_names) or re.fullmatch(r"[\d/_!-]+", value):
                return value
            count += 1
            return value + ATTACKS[count % len(ATTACKS)]
        if isinstance(value, dict):
            return {k: spoil(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [spoil(item) for item in value]
        return value

    for record in split_records(log):
        head, _, body = record.rstrip(b"\n").partition(b"\n")
        at = head.index(b"] {") + 2
        envelope = json.loads(head[at:])
        envelope.pop("has_payload", None)
        envelope = {k: spoil(v) if isinstance(v, dict | list) else v for k, v in envelope.items()}
        payload = body.removeprefix(b"\t").replace(b"\n\t", b"\n")
        if body.startswith(b"\t"):
            try:
                payload = json.dumps(spoil(json.loads(payload))).encode()
            except ValueError:
                count += 1
                lines = payload.decode().split("\n")
                payload = "\n".join(line + ATTACKS[(count + n) % len(ATTACKS)] for n, line in enumerate(lines)).encode()
            envelope["has_payload"] = hashlib.md5(payload, usedforsecurity=False).hexdigest()
            body = b"\t" + payload.replace(b"\n", b"\n\t")
        out.append(head[:at] + json.dumps(envelope).encode() + (b"\n" + body if body else b""))
    return b"\n".join(out) + b"\n"
