"""What the zoo holds: its programs by name, each with what its docstring says of it and its numbers.

A docstring has a title and six parts: ``Mesh``, ``Choose``, ``Breaks`` in words; ``Memory``, ``Activations`` and
``Traffic`` as formulas in the sizes of the module and of the axes. ``Gradients`` and ``State`` stand there where they
are not as the weights lie. Each is in elements of 8 bytes on rank 0, where a pipeline keeps the most:

``Memory``       of weights.
``Gradients``    that backward has made and that are kept, at most: for the optimizer, or until they are sent on.
``State``        of the optimizer: momentum.
``Activations``  that are kept for backward, at most, without weights and inputs; masks count an eighth. PyTorch keeps
                 so many; where a dim has one element, it may copy less.
``Traffic``      that are received in a step, by axis: ``all_reduce(e)`` of e elements over the axis's n ranks is
                 2 e (n - 1) / n, ``send(e)`` that of n - 1 hops, and ``recv(e)`` is e, or nothing where n is 1.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from shardwise.diagnostics.errors import SpmdValueError

from .program import ZooProgram

FOLDER = Path(__file__).parent / "programs"
PARTS = ("Mesh", "Choose", "Breaks", "Memory", "Gradients", "State", "Activations", "Traffic")
_RECEIVED = {
    "all_reduce": "2 * e * (n - 1) / n",
    "reduce_scatter": "e * (n - 1) / n",
    "all_to_all": "e * (n - 1) / n",
    "all_gather": "e * (n - 1)",
    "send": "e * (n - 1)",
    "recv": "e if n > 1 else 0",
}
"""What a rank of n receives for e elements: of its own piece for ``all_gather``, of a message for ``send`` and
``recv``, of the whole otherwise."""


@dataclass(frozen=True)
class Entry:
    """One program: its ``title``, the ``parts`` of its docstring, its ``module`` and the ``path`` of that."""

    name: str
    title: str
    parts: Mapping[str, str]
    path: Path

    @property
    def module(self) -> ModuleType:
        """The module; imports torch."""
        return importlib.import_module(f"shardwise.zoo.programs.{self.name}")

    @property
    def program(self) -> ZooProgram:
        """What is trained."""
        program: ZooProgram = self.module.PROGRAM
        return program

    @property
    def code(self) -> str:
        """The source behind the docstring."""
        text = self.path.read_text(encoding="utf-8")
        docstring = ast.parse(text).body[0]
        return "\n".join(text.splitlines()[docstring.end_lineno :]).strip("\n")

    def sizes(self, mesh: Mapping[str, int]) -> dict[str, int]:
        """Those of all axes, on a mesh of these sizes: where experts see the mesh in another way, of that too."""
        return {axis: size for seen in self.program.meshes(mesh) for axis, size in seen.items()}

    def memory(self, sizes: Mapping[str, int]) -> float:
        """Elements of weights that one rank of a mesh of these sizes holds, by the formula."""
        return self._value(self.parts["Memory"], self.sizes(sizes), 1)

    def state(self, sizes: Mapping[str, int]) -> float:
        """Elements of the optimizer's state that one rank of a mesh of these sizes holds, by the formula."""
        return self._value(self.parts["State"], self.sizes(sizes), 1)

    def gradients(self, sizes: Mapping[str, int]) -> float:
        """Elements of gradients that one rank of a mesh of these sizes keeps at most, by the formula."""
        return self._value(self.parts["Gradients"], self.sizes(sizes), 1)

    def activations(self, sizes: Mapping[str, int]) -> float:
        """Elements that one rank of a mesh of these sizes keeps at most for backward, by the formula."""
        return self._value(self.parts["Activations"], self.sizes(sizes), 1)

    def traffic(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Elements that one rank receives in a step, by axis, by the formulas."""
        sizes = self.sizes(sizes)
        return {axis: self._value(formula, sizes, sizes[axis]) for axis, formula in self.traffic_formulas().items()}

    def traffic_formulas(self) -> dict[str, str]:
        """What one rank receives in a step, by axis, as it is written."""
        return dict(re.findall(r"(\w+) = (.+?)(?= \w+ = |$)", self.parts["Traffic"]))

    def laws(self) -> dict[str, str]:
        """What each call of the formulas of traffic is for e elements over n ranks."""
        return {name: law for name, law in _RECEIVED.items() if re.search(rf"\b{name}\(", self.parts["Traffic"])}

    def _value(self, formula: str, sizes: Mapping[str, int], n: int) -> float:
        names: dict[str, object] = {"min": min, "max": max, **vars(self.module), **sizes}
        names |= {name: lambda e, law=law: _evaluated(law, {"e": e, "n": n}) for name, law in _RECEIVED.items()}
        return _evaluated(formula, names)


def _evaluated(formula: str, names: Mapping[str, object]) -> float:
    return float(eval(formula, {"__builtins__": {}}, names))  # formulas of our own files


def names() -> list[str]:
    """All programs."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def entry(name: str) -> Entry:
    """The program of this name.

    Errors: SW905 if there is none, with those whose names are near.
    """
    if name not in names():
        asked = name.lower()
        near = [one for one in names() if asked and asked in one] or difflib.get_close_matches(asked, names(), 3)
        raise SpmdValueError(
            f"the zoo has no {name!r}",
            code="SW905",
            help=(*(f"shardwise zoo {one}" for one in near[:3]), "shardwise zoo lists what it has"),
        )
    path = FOLDER / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title, _, rest = text.partition("\n")
    found = re.split(rf"^({'|'.join(PARTS)}):", rest, flags=re.MULTILINE)
    said = {part: " ".join(body.split()) for part, body in zip(found[1::2], found[2::2], strict=True)}
    parts = {"Gradients": said["Memory"], "State": said["Memory"], **said}
    return Entry(name, title, {part: parts[part] for part in PARTS}, path)
