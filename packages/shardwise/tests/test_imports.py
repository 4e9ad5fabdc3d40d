"""The arrows of docs/architecture.md, held for every import: between folders, inside checker/, and without circles.

Imports inside functions and under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import shardwise_devtools

from .source_trees import MODULES, PACKAGE, READ_TOGETHER, nodes

LEVELS = (
    {"diagnostics"},
    {"types"},
    {"mesh"},
    {"op_rules", "interop", "configuration"},
    {"planner", "rewriting"},
    {"collectives", "oracle", "host", "drawing"},
    {"train", "checker", "worlds", "report"},
    {"uniformity", "verifier"},
    {"testing", "zoo"},
    {"notebook", "servers"},
    {"cli"},
)
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
CHECKER_ORDER = (
    *("state", "call", "propagation", "diagnosis", "parts", "writes", "operators", "gradients", "collectives"),
    *("typing_rules", "functions", "control_flow", "observation", "dispatch", "mode", "patching", "scopes"),
)
"""Folders and modules of checker/ in the order in which a call flows; an import may only point left."""
DIAGNOSTICS_ORDER = (
    *("printing", "source_location", "source", "syntax", "operands", "decisions"),
    *("deciding_lines", "error_text", "excerpt"),
    *(
        "codes",
        "fix",
        "respelling",
        "finding",
        "errors",
        "explain",
        "causes",
        "run_record",
        "coverage",
        "result",
        "merged_results",
    ),
    *("statistics", "text", "formats", "services"),
)
"""Those of diagnostics/, from words and places to the forms of a whole run."""
INTEROP_ORDER = (
    *("torch_call", "torch_compat", "tensors", "running", "calls", "autograd", "communication", "fixes"),
    *("annotations", "alias"),
)
"""Those of interop/, from what only names torch to what a program says."""
VERIFIER_ORDER = (
    "rulecheck",
    "records",
    "distance",
    "layouts",
    "comparison",
    "runs",
    "annotating",
    "text",
    "formats",
    "report_sections",
    "verification",
    "roundings",
    "reference_runs",
    "narrowing",
    "other_ways",
    "run",
    "launched",
)
"""Those of verifier/, from what a run leaves to what is told of it."""
CLI_ORDER = (
    *("options", "pages", "runs"),
    *("check", "cost", "doctor", "draw", "einsum", "explain", "infer", "lsp", "mcp", "mesh", "plan", "rules"),
    *("verify", "zoo", "main", "start"),
)
"""Those of cli/: what commands share, then the commands, which the first module calls."""
ORDERS = {
    "diagnostics": DIAGNOSTICS_ORDER,
    "checker": CHECKER_ORDER,
    "interop": INTEROP_ORDER,
    "verifier": VERIFIER_ORDER,
    "cli": CLI_ORDER,
}
TORCH_FREE = ("types", "mesh", "diagnostics", "configuration", "op_rules", "planner", "drawing", "report", "rewriting")
FLAT_MODULES = {"__init__", "__main__", "_pictured", "_public_names", "rules", "runtime", "rulecheck"}
DEVTOOLS = Path(shardwise_devtools.__file__).parent
PRIVATE_TORCH_ALLOWED = "shardwise.interop.torch_compat"


pytestmark = READ_TOGETHER


def imported(module: str, is_package: bool, source: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that ``module`` imports, at any depth of its source."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + is_package]
                base = ".".join([*kept, *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def room_of(name: str) -> str:
    """The room that a dotted name of the package lies in; empty for the flat modules and other packages."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "shardwise" and parts[1] in LEVEL_OF else ""


def wrong_way(module: str, is_package: bool, source: str) -> list[str]:
    """The imports of ``module`` that do not point left."""
    here = room_of(module)
    errors = []
    for line, name in imported(module, is_package, source):
        if name.split(".")[0] != "shardwise" or not here:
            continue
        there = room_of(name)
        if there and there != here and LEVEL_OF[there] >= LEVEL_OF[here]:
            errors.append(f"{module}:{line} imports {name}, but {there} is not left of {here}")
        if there == here and here in ORDERS:
            errors.extend(wrong_way_inside(module, line, name))
        if (
            not there
            and name.removeprefix("shardwise.").split(".")[0] not in {"_public_names", "_pictured"}
            and here != "cli"
            and not module.startswith("shardwise.zoo.programs.")  # they are written as a user's are
        ):
            errors.append(f"{module}:{line} imports {name} from the front door; import it from its own room")
    return errors


def part_of(name: str) -> str:
    """The folder or module, of a room that has an order inside, that a dotted name lies in; empty for its door."""
    room, part = ([*name.split("."), "", ""])[1:3]
    return part if part in ORDERS.get(room, ()) else ""


def wrong_way_inside(module: str, line: int, name: str) -> list[str]:
    """The import of ``name`` by ``module``, both of one room, if it does not point left in the order of the room."""
    room, here, there = room_of(module), part_of(module), part_of(name)
    if not here or here == there:
        return []
    if not there:
        return [f"{module}:{line} imports {name} from the door of {room}/; import it from its own folder"]
    if ORDERS[room].index(there) > ORDERS[room].index(here):
        return [f"{module}:{line} imports {name}, but {room}/{there} is not left of {room}/{here}"]
    return []


def imported_modules(module: str, is_package: bool, source: str) -> set[str]:
    """The modules of the package that ``module`` imports, at any depth of its source."""
    found = set()
    for _, name in imported(module, is_package, source):
        found |= {name} & MODULES.keys() or {name.rpartition(".")[0]} & MODULES.keys()
    return found - {module}


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Sets of modules that can reach one another by imports."""
    reached: dict[str, set[str]] = {}
    for module in graph:
        todo = [*graph[module]]
        reached[module] = set()
        while todo:
            found = todo.pop()
            if found not in reached[module]:
                reached[module].add(found)
                todo.extend(graph.get(found, ()))
    groups = [{other for other in reached[one] if one in reached.get(other, ())} for one in graph]
    return [group for at, group in enumerate(groups) if group and group not in groups[:at]]


def private_torch_names(module: str, source: str) -> list[str]:
    """Uses of names of torch that start with one underscore."""
    roots = {"torch"}
    errors = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            roots |= {a.asname for a in node.names if a.asname and a.name.split(".")[0] == "torch"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch" and not node.level:
            roots |= {a.asname or a.name for a in node.names if (a.asname or a.name).islower()}
    for node in nodes(source):
        for dotted in _torch_names(node, roots):
            if any(part.startswith("_") and not part.startswith("__") for part in dotted.split(".")):
                errors.append(f"{module}:{node.lineno} uses {dotted}")
    return errors


PYTHONS = {"_fields", "_replace", "_getframe", "_current_frames", "_exit", "_value_", "_name_"}
"""Names with an underscore that Python's own library documents, and enums."""
OURS = {"_shardwise"}
"""Attributes that we put on objects of torch."""
READERS = {"getattr", "setattr", "hasattr", "delattr", "get", "pop", "patched", "replace_attribute"}
"""Functions and methods that take the name of an attribute."""
TOLD_WITHOUT_TORCH = {
    "shardwise.diagnostics.operands": {"_parameters", "_buffers", "_modules"},
    "shardwise.op_rules.operators.control_flow": {
        f"torch._higher_order_ops.{name}" for name in ("associative_scan", "map", "scan")
    },
}
"""What is named where torch is not loaded: parts of modules, operators. The registry has these names all the same."""


def foreign_private_names(module: str, source: str) -> list[str]:
    """Uses of names with one underscore that the module does not define itself: they are somebody else's, torch's."""
    known = PYTHONS | OURS | TOLD_WITHOUT_TORCH.get(module, set()) | set(_defined(source))
    return [
        f"{module}:{line} uses {name}"
        for line, name in _read(source)
        if any(part.startswith("_") and not part.startswith("__") for part in name.split(".")) and name not in known
    ]


def _defined(source: str) -> Iterator[str]:
    """Names that the module gives to something: functions, classes, variables, imports, its own attributes, slots."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "__slots__" for one in node.targets):
            yield from (one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant))


def _read(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of attributes that are read, by a dot or by a string, and dotted names in strings."""
    for node in nodes(source):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in READERS:
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield from ((node.lineno, text) for text in texts if text.isidentifier())
        elif isinstance(node, ast.Constant) and re.fullmatch(r"torch(\.\w+)+", str(node.value)):
            yield node.lineno, node.value


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _torch_names(node: ast.AST, roots: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names if a.name.split(".")[0] == "torch")
    elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
        yield from (f"{node.module}.{a.name}" for a in node.names)
    elif isinstance(node, ast.Attribute):
        parts = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in roots:
            yield ".".join([inner.id, *reversed(parts)])


def test_imports_point_left():
    wrong = (wrong_way(name, path.name == "__init__.py", path.read_text("utf-8")) for name, path in MODULES.items())
    assert list(itertools.chain.from_iterable(wrong)) == []


def outside_torch_compat() -> dict[str, str]:
    """The source of every module that may use no private name of torch."""
    allowed = f"{PRIVATE_TORCH_ALLOWED}."
    return {m: path.read_text("utf-8") for m, path in MODULES.items() if not f"{m}.".startswith(allowed)}


def test_private_torch_names_stay_in_torch_compat():
    assert [
        *itertools.chain.from_iterable(itertools.starmap(private_torch_names, outside_torch_compat().items()))
    ] == []


def test_the_developer_tools_use_no_private_torch_names():
    sources = {path.stem: path.read_text("utf-8") for path in DEVTOOLS.rglob("*.py")}
    assert len(sources) > 20
    assert [*itertools.chain.from_iterable(itertools.starmap(private_torch_names, sources.items()))] == []


def test_no_other_private_names_are_read():
    assert [
        *itertools.chain.from_iterable(itertools.starmap(foreign_private_names, outside_torch_compat().items()))
    ] == []


def test_what_is_told_without_torch_is_registered_all_the_same():
    from shardwise.interop.torch_compat import registered

    names = {part for private in registered() for part in (private.name, private.name.rpartition(":")[2])}
    assert set().union(*TOLD_WITHOUT_TORCH.values()) <= names


@pytest.mark.parametrize(
    "source",
    [
        "tensor._base",
        "getattr(x, '_grad_fn', None)",
        "patched(work, '_source_rank', f)",
        "vars(module).get('_forward_hooks')",
        "NAME = 'torch.distributed._functional_collectives.all_reduce'",
        "class A:\n    def f(self):\n        return self._forward_cls",
    ],
)
def test_a_planted_private_attribute_is_found(source):
    assert len(foreign_private_names("shardwise.checker.planted", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self):\n        self._x = 1\nA()._x",
        "def _f(): ...\n_f()",
        "sys._getframe(1)",
        "x.__dict__",
    ],
)
def test_own_private_attributes_are_allowed(source):
    assert foreign_private_names("shardwise.checker.planted", source) == []


def test_no_modules_import_one_another_in_a_circle():
    graph = {
        module: imported_modules(module, path.name == "__init__.py", path.read_text())
        for module, path in MODULES.items()
    }
    assert circles(graph) == []


def test_nothing_in_the_wheel_knows_the_developer_tools():
    assert [module for module, path in MODULES.items() if "shardwise_devtools" in path.read_text()] == []


@pytest.mark.parametrize("room", ORDERS)
def test_every_part_of_an_ordered_room_has_its_place(room):
    parts = {name.split(".")[2] for name in MODULES if name.startswith(f"shardwise.{room}.")}
    assert parts == set(ORDERS[room])


def test_every_module_lies_in_a_room():
    strangers = [m for m in MODULES if m.count(".") and not room_of(m) and m.split(".")[1] not in FLAT_MODULES]
    assert strangers == []


def test_only_package_files_have_lazy_public_names():
    for module, path in MODULES.items():
        names = {name for _, name in imported(module, path.name == "__init__.py", path.read_text())}
        if "shardwise._public_names.public_names" in names:
            assert path.name == "__init__.py" or module.removeprefix("shardwise.") in FLAT_MODULES, module


def _loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.processes
def test_importing_shardwise_loads_neither_torch_nor_the_checker():
    loaded = _loaded_after("import shardwise")
    assert not loaded & {"torch", "numpy", "shardwise.checker.mode"}


@pytest.mark.processes
def test_torch_free_rooms_load_without_torch():
    rooms = [f"shardwise.{room}" for room in TORCH_FREE if (PACKAGE / room).is_dir()]
    names = [m for m in MODULES for room in rooms if m.startswith(room + ".")]
    loaded = _loaded_after("\n".join(f"import {name}" for name in names))
    assert set(names) <= loaded
    assert not {name for name in loaded if name.split(".")[0] == "torch"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("shardwise.types.planted", "from shardwise.mesh.axis import MeshAxis"),
        ("shardwise.types.planted", "def f():\n    from ..mesh import axis"),
        ("shardwise.op_rules.planted", "import shardwise.interop.tensors.tagging"),
        ("shardwise.checker.planted", "from shardwise.worlds import fake"),
        ("shardwise.mesh.planted", "if TYPE_CHECKING:\n    from shardwise.checker.mode import Mode"),
        ("shardwise.collectives.planted", "from shardwise import R"),
        ("shardwise.checker.state.planted", "from ..call.operand import Operand"),
        ("shardwise.checker.operators.planted", "def f():\n    from shardwise.checker.gradients import backward"),
        ("shardwise.checker.dispatch", "if TYPE_CHECKING:\n    from .mode import CheckMode"),
        ("shardwise.checker.mode", "from .scopes.activation import typecheck"),
        ("shardwise.checker.patching.planted", "from shardwise.checker.scopes import regions"),
        ("shardwise.checker.functions.planted", "from shardwise.checker import typecheck"),
        ("shardwise.interop.tensors.planted", "from ..calls.tracing import trace"),
        ("shardwise.interop.torch_compat.planted", "from shardwise.interop.tensors.tagging import type_of"),
    ],
)
def test_a_planted_import_against_the_arrows_is_found(module, source):
    assert len(wrong_way(module, False, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("shardwise.mesh.planted", "from shardwise.types.spec import PartitionSpec\nfrom .axis import MeshAxis"),
        ("shardwise.checker.planted", "from ..op_rules.schema import OpRule\nimport torch"),
        ("shardwise.cli.planted", "from shardwise import __version__"),
        ("shardwise.checker.mode", "from .dispatch import dispatch\nfrom .state import session"),
        ("shardwise.checker.scopes.planted", "from ..mode import CheckMode\nfrom .regions import local"),
    ],
)
def test_an_import_to_the_left_is_allowed(module, source):
    assert wrong_way(module, False, source) == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": ["b"], "b": ["c"], "c": []}, []),
        ({"a": ["b"], "b": ["a", "c"], "c": []}, [{"a", "b"}]),
        ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}, [{"a", "b", "c"}]),
    ],
)
def test_a_planted_circle_is_found(graph, found):
    assert circles(graph) == found


@pytest.mark.parametrize(
    "source",
    [
        "import torch._C",
        "from torch.distributed import _functional_collectives",
        "from torch._subclasses.fake_tensor import FakeTensorMode",
        "import torch\ntorch._C._set_grad_enabled(True)",
        "import torch.distributed as dist\ndist.distributed_c10d._world",
        "def f():\n    from torch import distributed\n    return distributed._x",
    ],
)
def test_a_planted_private_torch_name_is_found(source):
    assert private_torch_names("shardwise.checker.planted", source) != []


def test_dunders_and_own_privates_are_not_private_torch_names():
    source = "import torch\ntorch.Tensor.__add__\nself._types\ntorch.__version__"
    assert private_torch_names("shardwise.checker.planted", source) == []


@pytest.mark.processes
def test_checking_and_collectives_load_neither_dtensor_nor_dynamo():
    program = (
        "import sys, torch; before = set(sys.modules)\n"
        "from shardwise.checker import typecheck\n"
        "import shardwise.collectives.communicate, shardwise.collectives.coerce, shardwise.collectives.partial\n"
        "print(sorted({'torch.distributed.tensor', 'torch._dynamo'} & (set(sys.modules) - before)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
