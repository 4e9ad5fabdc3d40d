"""The rules of the house that no tool checks."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter

import pytest

from .documents import ROOT
from .source_trees import MODULES, PACKAGE, READ_TOGETHER, nodes

pytestmark = READ_TOGETHER
FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
TEXT = [name for name in FILES if (ROOT / name).suffix in {".py", ".md", ".toml", ".txt", ".yml", ""}]
LONGEST = {"shardwise.op_rules.derived": 500}
"""More lines than others have, which have 400: what is generated."""
MOST_UNEXPLAINED = 12
"""So many modules of a folder can be taken in without a table of what each is for."""


def test_a_module_opens_with_what_it_answers_and_is_short():
    sources = {module: path.read_text("utf-8") for module, path in MODULES.items()}
    assert [m for m, source in sources.items() if source.strip() and not ast.get_docstring(nodes(source)[0])] == []
    lines = {module: len(source.splitlines()) for module, source in sources.items()}
    assert {module: count for module, count in lines.items() if count > LONGEST.get(module, 400)} == {}


LARGE = sorted(
    folder
    for folder, modules in Counter(path.parent for path in MODULES.values()).items()
    if modules > MOST_UNEXPLAINED + 1 and folder.name not in {"cli", "programs"}  # one a command, one a program
)


@pytest.mark.parametrize("folder", LARGE, ids=lambda folder: folder.name)
def test_a_large_folder_says_what_its_modules_are_for(folder):
    page = folder / "README.md"
    text = (
        page.read_text("utf-8") if page.exists() else ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    )
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    told = set(re.findall(r"\w+", text)) & modules
    assert modules - told == set(), "its README.md, or the docstring of its __init__.py, does not name them"


@pytest.mark.parametrize("page", sorted(PACKAGE.rglob("README.md")), ids=lambda page: page.parent.name)
def test_the_modules_that_a_folders_page_names_are_there(page):
    named = re.findall(r"`([a-z_0-9/]+\.py)`", page.read_text("utf-8"))
    near = (page.parent, PACKAGE, PACKAGE / "op_rules" / "operators", PACKAGE.parents[1])
    assert named
    assert [name for name in named if not any((folder / name).exists() for folder in near)] == []


def test_every_requirement_is_pinned():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    project = tomllib.loads((ROOT / "packages/shardwise/pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    assert {re.match(r"[\w-]+", one)[0].lower() for one in wanted} - pinned == set()


def test_every_make_command_of_the_documents_exists():
    words = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run", ".github/workflows/ci.yml", ".pre-commit-config.yaml"):
        used = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / name).read_text()))
        assert used, name
        assert used <= words | {"sure", "it"}, name


PACKAGES = sorted(path.parent for path in (ROOT / "packages").glob("*/pyproject.toml"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_version_of_a_package_stands_in_one_place(package):
    project = tomllib.loads((package / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert "version" in project["project"]["dynamic"]
    source = package / project["tool"]["hatch"]["version"]["path"]
    assert len(re.findall(r'^__version__ = "[^"]+"$', source.read_text(), re.MULTILINE)) == 1


def test_the_wheel_of_shardwise_is_its_own_folder_and_nothing_of_the_developer_tools():
    project = tomllib.loads((ROOT / "packages/shardwise/pyproject.toml").read_text())
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert targets == {"wheel": {"packages": ["src/shardwise"]}, "sdist": {"include": ["/src"]}}
    assert "shardwise-devtools" not in str(project["project"])
    shipped = [name for name in FILES if name.startswith("packages/shardwise/src/")]
    assert len(shipped) > 100
    assert [name for name in shipped if "devtools" in name or "/tests/" in name] == []


def test_hosted_ci_runs_the_torches_of_the_matrix():
    (torches,) = re.findall(r"^TORCHES +\?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (hosted,) = re.findall(r"torch: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert re.findall(r"[\d.]+", hosted) == torches.split()


def test_every_code_file_that_make_runs_exists():
    files = re.findall(r"\$\(BIN\)/python (\S+\.py)", (ROOT / "Makefile").read_text())
    assert [name for name in files if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("words", ["/tmp" + "/venv", "/work" + "/", "/root" + "/"])
def test_no_path_of_a_machine_is_in_the_repository(words):
    assert [name for name in TEXT if words in (ROOT / name).read_text(errors="replace")] == []


def test_both_copies_of_the_licence_agree():
    assert (ROOT / "LICENSE").read_text() == (ROOT / "packages/shardwise/LICENSE").read_text()


def _public_classes():
    for module, path in MODULES.items():
        for node in nodes(path.read_text()):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module


def test_one_class_name_has_one_meaning():
    holders: dict[str, list[str]] = {}
    for name, module in _public_classes():
        holders.setdefault(name, []).append(module)
    assert len(holders) > 100
    assert {name: modules for name, modules in holders.items() if len(modules) > 1} == {}
