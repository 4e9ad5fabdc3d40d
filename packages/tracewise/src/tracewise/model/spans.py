"""Begin and end events to spans with parents.

torch writes every event with thread 0, so a begin and an end belong together if name and compile id are equal, the
last begin first. The parent is the span of the same compilation that was open when this one began.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from tracewise.model.entities import Instant, Span
from tracewise.model.ids import CompileId

# Arguments that would hold a copy of a cache entry for every span.
LARGE_ARGS = frozenset(("components", "cache_bypass_traceback", "compile_id"))
ARG_TEXT = 200
MAX_ARGS = 24


class SpanBuilder:
    """Collects the events of one rank. ``add`` returns the oddity that the event shows, or an empty text."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.instants: list[Instant] = []
        self._open: dict[CompileId, list[Span]] = {}

    def add(self, event: Any, id: CompileId) -> str:
        if not isinstance(event, dict):
            return "bad_payload"
        name, phase, ts = event.get("name"), event.get("ph"), event.get("ts")
        if phase == "M":
            return ""
        if not isinstance(name, str) or not _is_time(ts):
            return "bad_payload"
        ts = float(ts)
        match phase:
            case "B":
                self._begin(Span(name, id, ts), event)
            case "E":
                return self._end(name, id, ts, event)
            case "X":
                dur = event.get("dur")
                span = Span(name, id, ts, max(float(dur), 0.0) if _is_time(dur) else None)
                self._begin(span, event)
                self._open[id].pop()
                self._credit(span)
            case "i" | "I" | "C":
                self.instants.append(Instant(name, id, ts))
            case _:
                return "bad_payload"
        return ""

    def _begin(self, span: Span, event: dict[str, Any]) -> None:
        above = self._open.setdefault(span.id, [])
        span.parent = above[-1] if above else None
        span.args = _small_args(event.get("args"))
        above.append(span)
        self.spans.append(span)

    def _end(self, name: str, id: CompileId, ts: float, event: dict[str, Any]) -> str:
        above = self._open.get(id, [])
        for position in range(len(above) - 1, -1, -1):
            span = above[position]
            if span.name == name:
                span.dur_us = max(ts - span.start_us, 0.0)
                if args := _small_args(event.get("args")):
                    span.args = {**(span.args or {}), **args}
                # Spans inside whose end was lost stay open; they are no parents any more.
                del above[position:]
                self._credit(span)
                return ""
        return "unpaired_end"

    @staticmethod
    def _credit(span: Span) -> None:
        if span.parent is not None and span.dur_us is not None:
            span.parent.child_us += span.dur_us


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e17 < value < 1e17


def _small_args(args: Any) -> dict[str, Any] | None:
    if not isinstance(args, dict):
        return None
    kept: dict[str, Any] = {}
    for key, value in args.items():
        if key in LARGE_ARGS or isinstance(value, list | dict) or value is None:
            continue
        if isinstance(value, str) and len(value) > ARG_TEXT:
            value = value[:ARG_TEXT] + "…"
        kept[str(key)[:ARG_TEXT]] = value
        if len(kept) >= MAX_ARGS:
            break
    return kept or None
