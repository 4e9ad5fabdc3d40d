"""The API reference: one Markdown page per subject, every public name with its signature and docstring.

Docstrings are read by their fields, whose names are what the style guide asks for:

    Shapes:  x [.., n, ..] on dim dst.dim ...      a field begins a line and goes on while lines are indented deeper
    Errors:  SW204 if ...                          codes become links to their pages
    Example:                                       the indented lines are a doctest, which a test runs in SETTING
        >>> y = all_reduce(x, "tp", dst=R)
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from shardwise._public_names import homes_of

MODULES = ("shardwise", "shardwise.types", "shardwise.mesh", "shardwise.checker", "shardwise.rules",
           "shardwise.rulecheck", "shardwise.train", "shardwise.testing")  # fmt: skip
"""The modules with public names. A name is described under the first that has it."""

PAGES = {
    "types": ("Types", ("types", "diagnostics.errors")),
    "meshes": ("Meshes and axes", ("mesh",)),
    "annotations": (
        "Annotations and questions",
        ("collectives.annotate", "collectives.queries", "collectives.remesh", "interop.annotations",
         "interop.running.recording"),
    ),
    "collectives": ("Collectives and coercions", ("collectives", "interop.communication")),
    "checking": ("Checking", ("checker.scopes", "collectives.regions", "collectives.randomness", "interop", "checker")),
    "typing-rules": (
        "Typing rules",
        ("rules", "checker.typing_rules", "op_rules", "verifier.rulecheck", "rulecheck", "checker.functions",
         "interop.autograd"),
    ),
    "pictures": ("Pictures", ("drawing",)),
    "training": ("The training step", ("train",)),
    "verifying": ("Verifying", ("verifier",)),
    "testing": ("Testing", ("testing",)),
}  # fmt: skip
"""Page name to its title and the packages whose names it has; the longest match of a name's home decides."""

SETTING = """Examples run as tests: on rank 0 of a mesh `dp=2, tp=4` that is current, inside `typecheck()`, with the
names of their module and of shardwise imported. Those of `verify`, `rulecheck` and `testing` bring their own mesh."""

FIELD = re.compile(r"^(Shapes|Types|Errors|Source|Example|Law):\s*")


@dataclass(frozen=True)
class PublicName:
    """One name of the API. ``path`` is how a user imports it; ``home`` the module that defines it."""

    path: str
    home: str
    value: object

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def page(self) -> str:
        """The page that describes it."""
        matches = {
            package: page
            for page, (_, packages) in PAGES.items()
            for package in packages
            if f"{self.home}.".startswith(f"shardwise.{package}.")
        }
        return matches[max(matches, key=len)]

    @property
    def doc(self) -> str:
        """Its docstring; of a plain value, the string that stands below its assignment."""
        if isinstance(self.value, type) or inspect.isroutine(self.value):
            return inspect.getdoc(self.value) or ""
        return _below_assignment(importlib.import_module(self.home), self.name)


def public_names() -> list[PublicName]:
    """Every public name once, in the order of the modules."""
    found: dict[int, PublicName] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        stub = Path(str(module.__file__)).with_suffix(".pyi")
        package = module_name if stub.stem == "__init__" else module_name.rpartition(".")[0]
        homes = homes_of(stub.read_text("utf-8"), package) if stub.exists() else {}
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                home = homes.get(name) or str(value.__module__)
                found.setdefault(id(value), PublicName(f"{module_name}.{name}", home, value))
    return list(found.values())


def _below_assignment(module: ModuleType, name: str) -> str:
    body = ast.parse(inspect.getsource(module)).body
    for statement, below in itertools.pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        named = any(
            isinstance(leaf, ast.Name) and leaf.id == name for target in targets if target for leaf in ast.walk(target)
        )
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return inspect.cleandoc(str(below.value.value))
    return ""


def pages() -> dict[str, str]:
    """File name, relative to the docs, to the text of every page."""
    names = public_names()
    texts = {}
    for page, (title, _) in PAGES.items():
        entries = [entry for one in names if one.page == page for entry in _entry(one)]
        texts[f"reference/{page}.md"] = "\n".join([f"# {title}", "", SETTING, "", *entries]) + "\n"
    return texts


def _entry(one: PublicName) -> Iterator[str]:
    yield f"## {one.name}"
    yield ""
    yield from ("```python", *signature(one), "```", "")
    yield from described(one.doc)
    yield ""


def signature(one: PublicName) -> Iterator[str]:
    """How it is imported and called, annotations included, a parameter a line where they are many."""
    module = one.path.rpartition(".")[0]
    yield f"from {module} import {one.name}"
    if not isinstance(one.value, type) and not inspect.isroutine(one.value):
        return
    try:
        parameters = inspect.signature(one.value)
    except (TypeError, ValueError):
        return
    shown = f"{one.name}{parameters}".replace("'", "")
    if len(shown) > 100:
        inner = ",\n".join(f"    {parameter}" for parameter in _listed(parameters))
        result = parameters.return_annotation
        arrow = "" if result is inspect.Signature.empty else f" -> {result}"
        shown = f"{one.name}(\n{inner},\n){arrow}".replace("'", "")
    yield ""
    yield from shown.splitlines()


def _listed(signature: inspect.Signature) -> Iterator[str]:
    """The parameters, with the marks before which they are positional and after which they are by name."""
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY and not {parameter.VAR_POSITIONAL, parameter.kind} & set(
            kinds[:index]
        ):
            yield "*"
        yield str(parameter)
        if parameter.kind is parameter.POSITIONAL_ONLY and kinds[index + 1 : index + 2] != [parameter.kind]:
            yield "/"


def fields(doc: str) -> dict[str, str]:
    """The text before the first field under "", then every field's text, dedented."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in doc.splitlines():
        match = FIELD.match(line)
        if match:
            current = match[1]
            found[current] = [line[match.end() :]]
        elif current and line and not line.startswith(" "):
            current = ""
            found[current] += ["", line]
        else:
            found[current].append(line)
    return {name: _dedented(lines) for name, lines in found.items()}


def _dedented(lines: list[str]) -> str:
    return "\n".join([*lines[:1], *textwrap.dedent("\n".join(lines[1:])).splitlines()]).strip("\n")


def described(doc: str) -> Iterator[str]:
    """A docstring as Markdown: prose, then a list of the fields, then the example."""
    parts = fields(doc)
    yield from _prose(parts.pop("", "")).splitlines()
    example = parts.pop("Example", "")
    yield ""
    for name, text in parts.items():
        yield f"- **{name}.** {_linked(' '.join(text.split()))}"
    if example:
        yield from ("", "```python", *example.splitlines(), "```")


def _prose(text: str) -> str:
    """Paragraphs as they are; the tables of arguments, two columns in code style, keep their lines."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and re.match(r"^``[^`]+``(, ``[^`]+``)*  ", lines[0]):
            items: list[str] = []
            for line in lines:
                if line.startswith("``"):
                    items.append("- " + re.sub(r"^(``[^`]+``(?:, ``[^`]+``)*)\s+", r"\1: ", line))
                else:
                    items.append("  " + line.strip())
            paragraphs.append("\n".join(items))
        else:
            paragraphs.append(paragraph)
    return _linked("\n\n".join(paragraphs).replace("``", "`"))


def _linked(text: str) -> str:
    return re.sub(r"\bSW\d{3}\b", lambda match: f"[{match[0]}](../codes/{match[0]}.md)", text.replace("``", "`"))
