"""What stands on the lines of a graph and of generated code: nodes, the user's line above each, kernels.

# File: train.py:24 in f, code: z = y.cos() * 2         the user's line of the nodes below
cos: "f32[4][1]cpu" = y.cos();  y = None                 node "cos"
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

SOURCE = re.compile(r"^\s*# File: (?P<file>.+?):(?P<line>\d+) in (?P<function>.*?), code: ?(?P<code>.*)$")
NODE = re.compile(r"^\s*(?P<name>[A-Za-z_]\w*)(?:: ?(?:\"[^\"]*\"|[\w.\[\], ]+))? = (?P<target>.*)$")
CALL = re.compile(r"^\s*def call\(")
HANDLE = re.compile(r"# \[Provenance debug handles\] (?P<handles>.+)$")
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
COMMENT = re.compile(r"^\s*#.*$|  # .*$", re.MULTILINE)
TRACE_NAME = re.compile(r"\b[A-Za-z_]+?_?\d+\b")


@dataclass(frozen=True, slots=True)
class GraphLine:
    """A node of a graph: its line number from 1, its name, and the user's line it comes from (file, line, code)."""

    number: int
    name: str
    source: tuple[str, int, str] | None


def graph_nodes(text: str) -> dict[str, GraphLine]:
    """The nodes of a graph by name."""
    found: dict[str, GraphLine] = {}
    source: tuple[str, int, str] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if match := SOURCE.match(line):
            source = (match["file"], int(match["line"][:9]), match["code"])
        elif line.lstrip().startswith("# No stacktrace found"):
            source = None
        elif match := NODE.match(line):
            found.setdefault(match["name"], GraphLine(number, match["name"], source))
    return found


def kernel_lines(code: str) -> dict[str, list[int]]:
    """Lines of generated code by debug handle (``kernel:3``), and by the kernel's name for code without handles."""
    found: dict[str, list[int]] = {}
    handles: list[str] = []
    is_calling = False
    for number, line in enumerate(code.split("\n"), 1):
        if CALL.match(line):
            is_calling = True
        if not is_calling:
            continue
        if match := HANDLE.search(line):
            handles = match["handles"].replace(",", " ").split()
            continue
        for handle in handles:
            found.setdefault(handle, []).append(number)
        handles = []
    return found


def lines_with(code: str, name: str) -> list[int]:
    """Lines after ``def call(`` that contain a kernel's name."""
    lines = code.split("\n")
    begin = next((number for number, line in enumerate(lines) if CALL.match(line)), len(lines))
    return [
        number + 1 for number in range(begin, len(lines)) if name in lines[number] and "Provenance" not in lines[number]
    ]


def fingerprint(text: str) -> str:
    """Equal for graphs that differ only in comments, addresses and the numbers in variable names."""
    names: dict[str, str] = {}
    text = ADDRESS.sub("0x", COMMENT.sub("", text))
    text = TRACE_NAME.sub(lambda match: names.setdefault(match[0], f"v{len(names)}"), text)
    return hashlib.sha1(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
