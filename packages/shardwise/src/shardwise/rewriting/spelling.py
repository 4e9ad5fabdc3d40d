"""How does a file say our public names? As it does already, else in the way that is in nobody's way."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as matchers
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor
from libcst.helpers import get_full_name_for_node

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Spelling:
    """How a file says the public names.

    ``prefix``  stands before each.
    ``adds``    the module to import, and under which name; None if the file has what it needs, or imports names.
    ``used``    the names that were said; ``ours`` those that the file has imported by themselves.
    ``others``  other modules to import, with the names for them.
    """

    prefix: str
    adds: tuple[str, str | None] | None
    used: set[str]
    ours: frozenset[str] = frozenset()
    others: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, module: cst.Module, needed: Collection[str]) -> Spelling:
        """``needed``  names of ours that the file may have to say."""
        names = _Bound()
        module.visit(names)
        names.forget(_assigned(module.code))
        if names.alias is not None:
            return cls(f"{names.alias}.", None, set(), frozenset(names.ours))
        foreign = names.bound - names.ours
        if not foreign & set(needed):
            return cls("", None, set(), frozenset(names.ours))
        alias = None if "spmd" in names.bound else "spmd"
        return cls(f"{alias or 'shardwise'}.", ("shardwise", alias), set())

    def name(self, text: str) -> str:
        """``R``, ``S(0)`` or ``assert_type`` as the file says it."""
        name = re.findall(r"^\w*", text)[0]
        if name in self.ours:
            return text
        self.used.add(name)
        return self.prefix + text

    def imports(self, module: str, name: str) -> str:
        """``name``, as which ``module`` will be imported."""
        self.others[module] = name
        return name

    def imported(self, text: str) -> str:
        """The source ``text`` with what was said imported, once."""
        wanted: list[tuple[str, str | None, str | None]] = [(other, None, name) for other, name in self.others.items()]
        if self.adds is not None:
            wanted.append((self.adds[0], None, self.adds[1]))
        elif not self.prefix:
            wanted += [("shardwise", name, None) for name in sorted(self.used)]
        if not wanted:
            return text  # to look for the imports of a file takes long
        context = CodemodContext()
        for home, name, alias in wanted:
            AddImportsVisitor.add_needed_import(context, home, name, alias)
        return AddImportsVisitor(context).transform_module(cst.parse_module(text)).code


def module_name(module: cst.Module, wanted: str) -> str | None:
    """What a file calls the module ``wanted`` (``torch.distributed``); None if it imports it nowhere."""
    package, _, last = wanted.rpartition(".")
    for node in matchers.findall(module, matchers.Import() | matchers.ImportFrom()):
        home = get_full_name_for_node(node.module) if isinstance(node, cst.ImportFrom) and node.module else None
        names = getattr(node, "names", ())
        for one in () if isinstance(names, cst.ImportStar) else names:
            name = get_full_name_for_node(one.name)
            if (home, name) in ((None, wanted), (package, last)):
                return one.evaluated_alias or name
    return None


def _assigned(source: str) -> set[str]:
    """Names that a file binds otherwise than by an import, in whatever scope."""
    nodes = list(ast.walk(ast.parse(source)))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return stored | arguments | {node.name for node in nodes if isinstance(node, _DEFINED)}


class _Bound(cst.CSTVisitor):
    """Names that a file binds, those that all of it has from shardwise, and what it calls the package."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.ours: set[str] = set()
        self.alias: str | None = None
        self._depth = 0

    def forget(self, assigned: set[str]) -> None:
        """Of these names it is not sure that they are still what was imported."""
        self.ours -= assigned
        if self.alias in assigned:
            self.alias = None

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._depth -= 1

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._depth += 1

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._depth -= 1

    def visit_Name(self, node: cst.Name) -> None:
        self.bound.add(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        for one in node.names:
            if get_full_name_for_node(one.name) == "shardwise" and not self._depth:
                self.alias = one.evaluated_alias or "shardwise"
        return True

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        home = None if node.module is None else get_full_name_for_node(node.module)
        if home == "shardwise" and not self._depth and not isinstance(node.names, cst.ImportStar):
            self.ours |= {one.evaluated_name for one in node.names if one.evaluated_alias is None}
        return True
