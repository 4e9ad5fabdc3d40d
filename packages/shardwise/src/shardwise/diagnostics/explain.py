"""The page ``explain/SW###.md`` of a code: what it means; a test runs the programs on it.

A page has one sentence, ``## Fails`` with a program whose marked line is reported with this very code, ``## Why`` with
the arithmetic on two ranks, ``## Repaired`` with a program that passes, and ``## Known from`` where a public class of
bugs is known. Programs stand inside the prelude (``explain/PRELUDE.md``) unless they import shardwise themselves.
"""

from __future__ import annotations

import difflib
import functools
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .codes import CODES, Code
from .errors import SpmdValueError

_PAGES = Path(__file__).parent / "explain"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """The parts of a page; ``text`` is all of it, as Markdown."""

    code: Code
    text: str
    sentence: str
    fails: str
    why: str
    repaired: str
    known_from: str = ""


def find(query: str) -> Code:
    """The code meant by ``SW112``, ``sw112``, ``112`` or ``partial-sum-in-nonlinear-op``.

    Errors: SW905 naming the nearest codes.
    """
    wanted = query.strip()
    number = wanted.upper() if wanted.upper().startswith("SW") else f"SW{wanted}"
    for code in CODES.values():
        if code.code == number or code.name == wanted.lower():
            return code
    names = {code.name: code.code for code in CODES.values()}
    stem = next(
        (number[:length] for length in (4, 3) if any(code.startswith(number[:length]) for code in CODES)), number
    )
    near = [code for code in CODES if code.startswith(stem)][:5]
    near += [names[name] for name in difflib.get_close_matches(wanted.lower(), names, n=3)]
    raise SpmdValueError(
        f"no diagnostic code {query!r}",
        code="SW905",
        help=tuple(f"{code} ({CODES[code].name})" for code in dict.fromkeys(near)),
    )


_COMMON = {"the", "and", "for", "that", "are", "not", "with", "one", "its", "has", "was", "over", "from", "this", "all"}
_MEANT_BY = dict.fromkeys(("deadlock", "deadlocks", "hang", "hangs", "hung", "stuck"), "wait") | {
    "allreduce": "reduce",
    "allgather": "gather",
    "reducescatter": "scatter",
}
_ABOUT = ((6, "name"), (4, "summary"), (3, "sentence"), (1, "text"))
"""What a word found there says of a code's being meant."""


def search(words: Iterable[str], most: int = 5) -> list[Code]:
    """The codes that the words are about, best first: words of names, summaries and pages, by their stems.

    Rare words say more than frequent ones, and a code that has more of the words stands before one that has fewer.
    """
    said = [word for text in words for word in re.findall(r"[a-z]+", text.lower())]
    asked = {_stem(_MEANT_BY.get(word, word)) for word in said}
    asked = {stem for stem in asked if len(stem) > 2} - _COMMON
    places = {code: _stems_of(code) for code in CODES}
    frequency = {stem: sum(stem in place["text"] for place in places.values()) for stem in asked}
    scores = {}
    for code, place in places.items():
        found = [stem for stem in asked if stem in place["text"] or stem in place["name"]]
        weights = (
            sum(weight for weight, part in _ABOUT if stem in place[part]) / frequency[stem] ** 0.5 for stem in found
        )
        scores[code] = len(found) * sum(weights)
    best = sorted((code for code in CODES if scores[code]), key=lambda code: -scores[code])
    return [CODES[code] for code in best[:most]]


@functools.cache
def _stems_of(code: str) -> dict[str, frozenset[str]]:
    """By part of the code's row and page, the stems of its words."""
    entry, whole = CODES[code], page(code)
    parts = {"name": entry.name, "summary": entry.summary, "sentence": whole.sentence, "text": whole.text}
    return {part: frozenset(map(_stem, re.findall(r"[a-z]+", text.lower()))) for part, text in parts.items()}


def _stem(word: str) -> str:
    """Enough of a word to know it again: ``gradients`` and ``gradient``, ``summed`` and ``sums``."""
    for ending in ("ations", "ation", "ions", "ings", "ion", "ing", "ies", "med", "ed", "es", "s", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def page(query: str) -> Page:
    """The page of a code."""
    code = find(query)
    text = (_PAGES / f"{code.code}.md").read_text(encoding="utf-8")
    head, *rest = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    return Page(
        code=code,
        text=text,
        sentence=head.partition("\n")[2].strip(),
        fails=_program(parts["Fails"]),
        why=parts["Why"].strip(),
        repaired=_program(parts["Repaired"]),
        known_from=parts.get("Known from", "").strip(),
    )


def index() -> str:
    """All codes with their summaries, one per line, as plain text."""
    width = max(len(code.name) for code in CODES.values())
    return "\n".join(f"{code.code}  {code.name:<{width}}  {code.summary}" for code in CODES.values())


def runnable(program: str) -> str:
    """A page's program as a whole script: inside the prelude, unless it has its own imports."""
    if "import shardwise" in program:
        return program
    prelude = _program((_PAGES / "PRELUDE.md").read_text(encoding="utf-8"))
    return prelude.replace("    ...\n", textwrap.indent(program, "    "))


def render(query: str, *, color: bool = False, width: int = 100) -> str:
    """The page for a terminal: Markdown as it is, or laid out and coloured."""
    text = page(query).text
    if not color:
        return text.rstrip("\n")
    from io import StringIO

    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=StringIO(), force_terminal=True, width=width, color_system="standard")
    with console.capture() as capture:
        console.print(Markdown(text, code_theme="ansi_dark"))
    return capture.get().rstrip("\n")


def _program(section: str) -> str:
    found = _BLOCK.search(section)
    assert found is not None, "every page has its programs; tests/diagnostics/test_codes.py looks"
    return found.group(1)
