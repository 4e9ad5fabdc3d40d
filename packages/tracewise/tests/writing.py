"""Trace logs written as torch writes them, for tests that need a log of their own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_US = 1_795_320_000_000_000  # 2026-11-22 04:00:00 UTC


def head(envelope: dict[str, Any], *, second: float = 0.0, pid: int = 11100, path: str = "torch/x.py:1") -> bytes:
    """One head line; times count from 04:00:00 of 22 November."""
    minutes, rest_us = divmod(round(second * 1e6), 60_000_000)
    hour, minute = divmod(minutes, 60)
    clock = f"{4 + hour:02}:{minute:02}:{rest_us // 1_000_000:02}.{rest_us % 1_000_000:06}"
    return f"V1122 {clock} {pid} {path}] ".encode() + json.dumps(envelope).encode() + b"\n"


def record(envelope: dict[str, Any], payload: str | bytes | None = None, **where: Any) -> bytes:
    """A head line with its payload."""
    if payload is None:
        return head(envelope, **where)
    data = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
    envelope = {**envelope, "has_payload": hashlib.md5(data, usedforsecurity=False).hexdigest()}
    return head(envelope, **where) + b"\t" + data.replace(b"\n", b"\n\t") + b"\n"


def ids(frame: int = 0, compile: int = 0, attempt: int = 0) -> dict[str, int]:
    """The context keys of a compile id."""
    return {"frame_id": frame, "frame_compile_id": compile, "attempt": attempt}


def artifact(name: str, payload: str, encoding: str = "string", **context: Any) -> bytes:
    where = {key: context.pop(key) for key in ("second", "pid") if key in context}
    return record({"artifact": {"name": name, "encoding": encoding}, **context}, payload, **where)


def event(
    name: str, phase: str, second: float, *, frame: int = 0, compile: int = 0, args: Any = None, **more: Any
) -> bytes:
    payload = {"name": name, "ts": START_US + second * 1e6, "args": args or {}, "ph": phase, "cat": "dynamo_timed"}
    text = json.dumps(payload, indent=0)
    return record({"chromium_event": {}, **ids(frame, compile), **more}, text, second=second)


@dataclass
class Writer:
    """A log of one compilation after the other."""

    parts: list[bytes] = field(default_factory=list)
    second: float = 0.0

    def add(self, *parts: bytes) -> Writer:
        self.parts += parts
        return self

    def compilation(
        self,
        function: str = "f",
        *,
        frame: int = 0,
        compile: int = 0,
        file: str = "train.py",
        line: int = 10,
        seconds: float = 1.0,
        inside: tuple[bytes, ...] = (),
        **metrics: Any,
    ) -> Writer:
        """A whole compilation with the metrics given; ``inside`` stands between its begin and its end."""
        begin, end = self.second, self.second + seconds
        self.second = end
        stack = [{"line": 1, "name": "<module>", "filename": 0, "loc": f"{function}(x)"}]
        stack.append({"line": line, "name": function, "filename": 0, "loc": f"def {function}(x):"})
        self.parts += [
            event("dynamo", "B", begin, frame=frame, compile=compile),
            record({"str": [file, 0]}, second=begin),
            record({"dynamo_start": {"stack": stack}, **ids(frame, compile)}, second=begin),
            *inside,
            event("dynamo", "E", end, frame=frame, compile=compile),
            record(
                {
                    "compilation_metrics": {
                        "compile_id": f"{frame}/{compile}",
                        "co_name": function,
                        "co_filename": file,
                        "co_firstlineno": line,
                        "start_time_us": int(START_US + begin * 1e6),
                        "duration_us": int(seconds * 1e6),
                        "graph_op_count": 3,
                        **metrics,
                    },
                    **ids(frame, compile),
                },
                second=end,
            ),
        ]
        return self

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    def write(self, folder: Path, name: str = "dedicated_log_torch_trace_abcd1234.log") -> Path:
        path = folder / name
        path.write_bytes(self.data)
        return path
