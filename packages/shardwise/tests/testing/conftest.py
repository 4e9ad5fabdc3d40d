"""pytest run on a small project, with the plugin as an installed shardwise brings it."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from _pytest.pytester import SysModulesSnapshot

import shardwise.testing.one_device  # noqa: F401  loaded once: torch cannot be loaded twice in one process

PLUGIN = "shardwise.testing.plugin"


def plugin_options():
    """Nothing where the installed package brings the plugin; else what loads it."""
    brought = [one.value for one in importlib.metadata.entry_points(group="pytest11")]
    return [] if PLUGIN in brought else ["-p", PLUGIN]


class SpmdProject:
    """``write`` a file of tests, then ``run`` pytest on it."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.folder = pytester.path
        pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def write(self, source):
        self.pytester.makepyfile(test_it="import torch, pytest\nfrom shardwise import *\n" + source)

    def run(self, *options):
        return self.pytester.runpytest(*plugin_options(), "-p", "no:cacheprovider", *options)

    def run_source(self, source, *options):
        self.write(source)
        return self.run(*options)


@pytest.fixture
def spmd_project(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    # A file that is written twice in one second at the same length would be read from its old bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def snapshot():
        """All but the project's own modules stay."""
        return SysModulesSnapshot(preserve=lambda name: name != "test_it")

    monkeypatch.setattr(pytester, "_Pytester__take_sys_modules_snapshot", snapshot)
    monkeypatch.setattr(pytester, "_sys_modules_snapshot", snapshot())
    return SpmdProject(pytester)
