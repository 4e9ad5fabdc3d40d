"""What torch writes about a graph break or a failure, taken apart.

    Graph break in user code at /home/me/train.py:27
    Graph Break Reason: Encountered graph break when attempting to trace CALL: ...:
    <empty line>
    Failed to trace builtin operator                                          headline
      Explanation: Dynamo does not know how to trace builtin operator `print`
      Hint: Avoid calling builtin `print` ...
      Developer debug context: ...
     For more details about this graph break, please visit: https://.../gb/gb0059.html
    User code traceback: ...

Restart reasons and failures have the same text from the headline on. Source: torch/_dynamo/exc.py, torch 2.13.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tracewise.model.entities import Frame

PLACE = re.compile(r"^Graph break in user code at (.+):(\d{1,9})$", re.MULTILINE)
URL = re.compile(r"please visit:\s*(https?://\S+)")
GB_NUMBER = re.compile(r"/(gb\d+)\b")
LABEL = re.compile(r"^\s*(Explanation|Hint|Developer debug context): ?(.*)$")
TRACEBACK_LINE = re.compile(r'^\s*File "(.+)", line (\d{1,9}), in (.+)$', re.MULTILINE)
EXCEPTION_LINE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Unsupported|Failed|Exceeded)\w*): (.*)$")


@dataclass(slots=True)
class BreakInfo:
    """The parts of such a text; a part that it lacks is empty."""

    headline: str
    explanation: str = ""
    hints: list[str] = field(default_factory=list)
    context: str = ""
    url: str = ""
    number: str = ""
    file: str = ""
    line: int = 0


def parse_break(text: str) -> BreakInfo:
    """Takes the text apart, whatever it holds; the headline is never empty for a text that is not."""
    place = PLACE.search(text)
    body = _body(text)
    info = BreakInfo(_headline(body))
    if place:
        info.file, info.line = place[1], int(place[2])
    label = ""
    values: list[str] = []
    for line in [*body.splitlines()[1:], "  Hint: "]:
        match = LABEL.match(line)
        if match or line.lstrip().startswith(("For more details", "User code traceback", "from user code")):
            _store(info, label, "\n".join(values).strip())
            label, values = (match[1], [match[2]]) if match else ("", [])
        elif label:
            values.append(line.strip())
    if match := URL.search(text):
        info.url = match[1]
        number = GB_NUMBER.search(info.url)
        info.number = number[1] if number else ""
    return info


def user_place(text: str) -> tuple[str, int] | None:
    """File and line of the innermost frame of a traceback that is the user's."""
    found = [(match[1], int(match[2])) for match in TRACEBACK_LINE.finditer(text)]
    return next((place for place in reversed(found) if not Frame(*place, "", "").is_library), None)


def _body(text: str) -> str:
    """From the headline on."""
    _, found, rest = text.partition("Graph Break Reason:")
    if found:
        return rest.strip()
    if text.startswith("Traceback (most recent call last)"):
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if match := EXCEPTION_LINE.match(line):
                rest = "\n".join(lines[number + 1 :])
                return f"{match[2] or match[1]}\n{rest}" if match[2] else f"{match[1]}\n{rest}"
    return text.strip()


def _headline(body: str) -> str:
    """The line above the explanation, else the first; one that ends in a colon goes on with the next."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if not lines:
        return ""
    explained = next((n for n, line in enumerate(lines) if n and line.startswith("Explanation:")), 1)
    headline = lines[explained - 1]
    if headline.endswith(":") and len(lines) > explained:
        headline += " " + lines[explained]
    return headline[:500]


def _store(info: BreakInfo, label: str, value: str) -> None:
    match label:
        case "Explanation":
            info.explanation = value
        case "Hint" if value and value not in info.hints:
            info.hints.append(value)
        case "Developer debug context":
            info.context = value
