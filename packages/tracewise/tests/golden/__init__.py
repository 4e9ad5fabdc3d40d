"""The golden logs, unpacked, and a second reader of them: slow, naive, and only for logs without damage."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".log.xz") for path in FOLDER.glob("*.log.xz"))
CONTEXT = {"rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "has_payload", "stack"}


@cache
def golden(name: str) -> bytes:
    """The bytes of a golden log."""
    return lzma.decompress((FOLDER / f"{name}.log.xz").read_bytes())


@dataclass
class Facts:
    """What a log says, counted by hand."""

    kinds: Counter[str] = field(default_factory=Counter)
    artifacts: Counter[str] = field(default_factory=Counter)
    ids: set[tuple[Any, ...]] = field(default_factory=set)
    begins: int = 0
    ends: int = 0
    instants: int = 0
    failures: list[str] = field(default_factory=list)
    restarts: int = 0
    compile_us: int = 0


@cache
def facts(name: str) -> Facts:
    found = Facts()
    for text in ("\n" + golden(name).decode()).split("\nV")[1:]:
        head, _, body = text.partition("\n")
        envelope = json.loads(head[head.index("] {") + 2 :])
        kind = next((key for key in envelope if key not in CONTEXT), "stack")
        found.kinds[kind] += 1
        value = envelope.get(kind)
        if "frame_id" in envelope or "compiled_autograd_id" in envelope:
            found.ids.add(tuple(envelope.get(k) for k in ("compiled_autograd_id", "frame_id", "frame_compile_id")))
        if kind == "artifact":
            found.artifacts[value["name"]] += 1
        if kind == "chromium_event":
            phase = json.loads(body.replace("\n\t", "\n"))["ph"]
            found.begins += phase == "B"
            found.ends += phase == "E"
            found.instants += phase == "i"
        if kind == "compilation_metrics":
            found.compile_us += value["duration_us"] or 0
            if value["fail_type"]:
                found.failures.append(value["fail_type"])
            reasons = value["restart_reasons"] or []
            found.restarts += len(json.loads(reasons) if isinstance(reasons, str) else reasons)
    return found
