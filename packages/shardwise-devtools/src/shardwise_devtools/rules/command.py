"""``shardwise-devtools rules``: writes what torch says of its operators down for the op rules."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import click
import torch

from shardwise import op_rules
from shardwise.diagnostics.result import ExitCode

from .metadata import REFUTED, Metadata, metadata

DERIVED = Path(op_rules.__file__).parent / "derived.py"

_MODULE = '''"""What torch {torch} says of its operators, by their names in the registry. Written by ``make rules``.

``PARAMETERS``  positional parameters, then those that go by keyword only; the first operand is called ``input``.
``ALIASES``     further names of an operator.
``POINTWISE``   tagged as working element by element, but for those that ``REFUTED`` has a reason for: there the numeric
                oracle disagrees with the tag.
``VIEWS``       operators whose result may share the first operand's memory.
``SEEDED``      tagged as drawing from a random generator.
"""

from __future__ import annotations

import re


def _entries(text: str) -> list[tuple[str, list[str]]]:
    """What stands before the colon of every entry, and the words behind it."""
    found = (entry.partition(":") for entry in re.split(r"\\n {4}(?! )", text) if entry.strip())
    return [(" ".join(head.split()), tail.split()) for head, _, tail in found]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARAMETERS = {
    name: parameters
    for parameters, names in _entries("""
{PARAMETERS}
    """)
    for name in names
}
ALIASES = {
    name: tuple(others)
    for name, others in _entries("""
{ALIASES}
    """)
}
POINTWISE = _words("""
{POINTWISE}
""")
REFUTED = {
    "pointwise": {
{REFUTED}
    }
}
VIEWS = _words("""
{VIEWS}
""")
SEEDED = _words("""
{SEEDED}
""")
'''


@click.command(short_help="write what torch says of its operators")
@click.option("--write", is_flag=True, help="Renew op_rules/derived.py.")
def rules(write: bool) -> ExitCode:
    """Compare op_rules/derived.py with the metadata of the torch that is installed."""
    text = render(metadata())
    if text == DERIVED.read_text("utf-8"):
        click.echo(f"{DERIVED.name} is what torch {torch.__version__} says")
        return ExitCode.CLEAN
    if not write:
        click.echo(f"{DERIVED.name} is not what torch {torch.__version__} says; renew it with --write", err=True)
        return ExitCode.FINDINGS
    DERIVED.write_text(text, "utf-8")
    click.echo(f"wrote {DERIVED.name}")
    return ExitCode.CLEAN


def render(found: Metadata) -> str:
    """The module ``derived.py``."""
    by_parameters: dict[str, list[str]] = defaultdict(list)
    for name, parameters in sorted(found.parameters.items()):
        by_parameters[" ".join(parameters)].append(name)
    refuted = "\n".join(f'        "{name}": "{why}",' for name, why in REFUTED["pointwise"].items())
    texts = {
        "REFUTED": refuted,
        "PARAMETERS": _lines(f"{parameters}: {' '.join(names)}" for parameters, names in sorted(by_parameters.items())),
        "ALIASES": _lines(f"{name}: {' '.join(others)}" for name, others in found.aliases.items()),
        "POINTWISE": _words(found.pointwise),
        "VIEWS": _words(found.views),
        "SEEDED": _words(found.seeded),
    }
    module = _MODULE.replace("{torch}", torch.__version__.partition("+")[0])
    for name, text in texts.items():
        module = module.replace(f"{{{name}}}", text)
    return module


def _lines(entries: Iterable[str]) -> str:
    """An entry a line; what does not fit goes on in lines that are indented further."""
    wrap = textwrap.TextWrapper(110, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
    return "\n".join(wrap.fill(entry) for entry in entries)


def _words(names: Iterable[str]) -> str:
    return textwrap.indent(textwrap.fill(" ".join(sorted(names)), 110, break_on_hyphens=False), "    ")
