"""Tolerant reading of fields: a value of an unexpected type costs that field and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracewise.model.entities import Frame, Stack

MAX_FRAMES = 10_000
SHOWN_TEXT = 10_000


class Fields:
    """The fields of one JSON object. ``on_bad(name)`` is told of each value of an unexpected type; null is no value."""

    __slots__ = ("_on_bad", "_values")

    def __init__(self, value: Any, on_bad: Callable[[str], None]) -> None:
        self._on_bad = on_bad
        if not isinstance(value, dict):
            if value is not None:
                on_bad("")
            value = {}
        self._values: dict[str, Any] = value

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name)
        if isinstance(value, str):
            return value
        if value is not None:
            self._on_bad(name)
        return default

    def shown(self, name: str) -> str:
        """Text of whatever is there: for fields that changed their type between versions."""
        value = self._values.get(name)
        if value is None:
            return ""
        return value if isinstance(value, str) else str(value)[:SHOWN_TEXT]

    def integer(self, name: str) -> int | None:
        value = self._values.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            self._on_bad(name)
        return None

    def number(self, name: str) -> float | None:
        value = self._values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300:
            return float(value)
        if value is not None:
            self._on_bad(name)
        return None

    def texts(self, name: str) -> list[str]:
        """A list of texts; one text counts as a list of one."""
        value = self._values.get(name)
        if isinstance(value, str):
            return [value]
        if isinstance(value, list):
            if any(not isinstance(item, str) for item in value):
                self._on_bad(name)
            return [item for item in value if isinstance(item, str)]
        if value is not None:
            self._on_bad(name)
        return []

    def integers(self, name: str) -> list[int]:
        value = self._values.get(name)
        if isinstance(value, list):
            return [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
        if value is not None:
            self._on_bad(name)
        return []

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._values.get(name)
        if isinstance(value, dict):
            return value
        if value is not None:
            self._on_bad(name)
        return {}

    def get(self, name: str) -> Any:
        return self._values.get(name)

    @property
    def names(self) -> list[str]:
        return list(self._values)


class StackReader:
    """Stacks with their interned file names looked up; equal frames and stacks are one object."""

    def __init__(self, on_missing: Callable[[int], None], on_bad: Callable[[str], None]) -> None:
        self._on_missing = on_missing
        self._on_bad = on_bad
        self._stacks: dict[Stack, Stack] = {}
        self._frames: dict[Frame, Frame] = {}

    def read(self, value: Any, strings: dict[int, str]) -> Stack:
        if value is None:
            return ()
        if not isinstance(value, list):
            self._on_bad("stack")
            return ()
        stack = tuple(self._frame(item, strings) for item in value[:MAX_FRAMES])
        return self._stacks.setdefault(stack, stack)

    def _frame(self, item: Any, strings: dict[int, str]) -> Frame:
        fields = Fields(item, lambda name: self._on_bad(f"stack.{name}" if name else "stack"))
        filename = fields.get("filename")
        if isinstance(filename, str):
            file = filename
        elif isinstance(filename, int) and not isinstance(filename, bool):
            file = "" if filename == -1 else strings.get(filename, "")
            if not file and filename != -1:
                self._on_missing(filename)
                file = f"<string {filename}>"
        else:
            if filename is not None:
                self._on_bad("stack.filename")
            file = ""
        frame = Frame(file, fields.integer("line") or 0, fields.text("name"), fields.text("loc"))
        return self._frames.setdefault(frame, frame)
