"""A program written for another package's name runs on shardwise; nothing else about imports changes."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

import shardwise
import shardwise.checker
import shardwise.runtime
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop import alias

NAME = "a_package_that_is_not_installed"


@pytest.fixture
def installed():
    alias.install(NAME)
    yield
    alias.uninstall(NAME)


@pytest.mark.usefixtures("installed")
def test_the_package_and_its_modules_are_ours_and_not_copies():
    assert importlib.import_module(NAME) is shardwise
    assert importlib.import_module(f"{NAME}.checker") is shardwise.checker
    program = f"import {NAME} as spmd, {NAME}.runtime\nfrom {NAME}.runtime import get_local_type\n"
    names: dict[str, object] = {}
    exec(program, names)
    assert names["spmd"] is shardwise
    assert names["get_local_type"] is shardwise.runtime.get_local_type


@pytest.mark.usefixtures("installed")
def test_a_module_keeps_its_own_name_and_spec():
    for name in ("", ".checker", ".types.spec"):
        module = importlib.import_module(f"{NAME}{name}")
        assert module.__name__ == f"shardwise{name}"
        assert module.__spec__ is not None
        assert module.__spec__.name == f"shardwise{name}"


@pytest.mark.usefixtures("installed")
def test_the_package_can_be_looked_for_before_it_is_imported():
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.submodule_search_locations is not None


@pytest.mark.usefixtures("installed")
def test_a_module_that_we_do_not_have_is_missing_under_the_name_asked_for():
    with pytest.raises(ModuleNotFoundError, match=f"{NAME}._private"):
        importlib.import_module(f"{NAME}._private")


@pytest.mark.usefixtures("installed")
def test_installing_twice_is_installing_once():
    finders = list(sys.meta_path)
    alias.install(NAME)
    assert sys.meta_path == finders


def test_uninstalling_makes_the_name_unknown_again():
    finders = list(sys.meta_path)
    alias.install(NAME)
    importlib.import_module(f"{NAME}.types")
    alias.uninstall(NAME)
    assert sys.meta_path == finders
    with pytest.raises(ModuleNotFoundError, match=NAME):
        importlib.import_module(NAME)
    assert not [name for name in sys.modules if name.startswith(NAME)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shardwise", "another top-level package"),
        ("some.module", "another top-level package"),
        ("", "another top-level package"),
        ("pytest", "imported already"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused(name, words):
    with pytest.raises(ValueError, match=words) as raised:
        alias.install(name)
    assert isinstance(raised.value, SpmdTypeError)
    assert raised.value.code == "SW903"
