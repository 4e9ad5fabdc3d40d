"""The page ``explain/SW###.md`` of a code: what it means; a test runs the programs on it.

A page has one sentence, ``## Fails`` with a program whose marked line is reported with this very code, ``## Why`` with
the arithmetic on two ranks, ``## Repaired`` with a program that passes, and ``## Known from`` where a public class of
bugs is known. Programs stand inside the prelude (``explain/PRELUDE.md``) unless they import shardwise themselves.
"""

from __future__ import annotations

import difflib
import re
import textwrap
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
        f"no diagnostic code {query!r}, known are {', '.join(CODES)}",
        code="SW905",
        help=tuple(f"shardwise explain {code}" for code in dict.fromkeys(near)),
    )


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


def marked_line(program: str, code: str) -> int:
    """The 1-based line that carries the trailing comment ``# SW###``."""
    lines = [number for number, line in enumerate(program.splitlines(), 1) if line.endswith(f"# {code}")]
    if len(lines) != 1:
        raise SpmdValueError(f"one line must be marked # {code}, {len(lines)} are", code="SW905")
    return lines[0]


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
