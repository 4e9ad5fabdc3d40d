"""Compile ids: which compiled-autograd graph, frame, compilation of the frame, and attempt."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

TEXT = re.compile(
    r"^\[?(?:!(?P<ca>\d+)/)?(?P<frame>\d+|-)/(?P<compile>\d+|-)(?:_(?P<attempt>\d+))?(?: ?#(?P<use>\d+))?\]?$"
)


class CompileId(NamedTuple):
    """``[!ca/frame/compile_attempt]``; each part may be missing.

    A missing attempt and attempt 0 are the same chapter: what runs later is logged without one. torch counts anew
    after ``torch._dynamo.reset()``; ``use`` is 0 for the first use of an id in a process, 1 (written ``#2``) for
    the next.
    """

    autograd: int | None = None
    frame: int | None = None
    compile: int | None = None
    attempt: int = 0
    use: int = 0

    @property
    def compilation(self) -> CompileId:
        """The id without attempt: the unit that a user thinks in."""
        return self if self.attempt == 0 else self._replace(attempt=0)

    @property
    def is_empty(self) -> bool:
        return self.autograd is None and self.frame is None and self.compile is None

    def __str__(self) -> str:
        autograd = "" if self.autograd is None else f"!{self.autograd}/"
        attempt = f"_{self.attempt}" if self.attempt else ""
        use = f" #{self.use + 1}" if self.use else ""
        return f"[{autograd}{_dash(self.frame)}/{_dash(self.compile)}{attempt}{use}]"

    @property
    def folder(self) -> str:
        """The form for file names: ``-_0_0_1``."""
        use = f"_use{self.use + 1}" if self.use else ""
        return f"{_dash(self.autograd)}_{_dash(self.frame)}_{_dash(self.compile)}_{self.attempt}{use}"


def parse_compile_id(text: str) -> CompileId | None:
    """The id that a text such as ``0/2_1`` or ``[!0/-/-]`` stands for; ``None`` if it is none."""
    match = TEXT.match(text.strip())
    if match is None or any(part and len(part) > 18 for part in match.groups()):
        return None
    return CompileId(
        _number(match["ca"]),
        _number(match["frame"]),
        _number(match["compile"]),
        int(match["attempt"] or 0),
        max(int(match["use"] or 1) - 1, 0),
    )


def id_of_envelope(envelope: dict[str, Any]) -> tuple[CompileId, list[str]]:
    """The id of a record, and the keys whose values are no numbers."""
    bad: list[str] = []
    parts: list[int | None] = []
    for key in ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt"):
        part = envelope.get(key)
        if part is not None and (type(part) is not int or part < 0):
            bad.append(key)
            part = None
        parts.append(part)
    return CompileId(parts[0], parts[1], parts[2], parts[3] or 0), bad


def _dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None or text == "-" else int(text)
