"""How does a program written for another package's name run on shardwise unchanged? Its imports are answered here.

``install("spmd_types")`` and from then on ``import spmd_types`` is ``import shardwise``, and so for every module of it
that shardwise has: the same module objects, so a type made under one name is a type under the other.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from shardwise.diagnostics.errors import SpmdValueError

_HOME = __name__.partition(".")[0]
_installed: set[str] = set()


class _Alias(MetaPathFinder, Loader):
    """Finder and loader of the modules of one name: each is the module of the same name in this package."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != self.name:
            return None
        original = f"{_HOME}.{rest}" if rest else _HOME
        spec = importlib.util.find_spec(original)
        if spec is None:
            return None
        return ModuleSpec(fullname, self, origin=original, is_package=spec.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run; the import system has put its spec on the module, so the module's own is put back."""
        assert module.__spec__ is not None, "the import system gives every module that it loads a spec"
        if isinstance(module.__spec__.loader_state, ModuleSpec):
            module.__spec__ = module.__spec__.loader_state


def is_installed() -> bool:
    """True while programs may run that were written for another package's name, and expect its readings."""
    return bool(_installed)


def install(name: str = "spmd_types") -> None:
    """Let ``import <name>`` and ``import <name>.<module>`` mean shardwise, also where a package of that name exists.

    As long as it is installed, what that package refuses of raw collectives is refused, and an operator without a rule
    is read as it reads it (docs/compat.md).

    Call it before the first import of that name; a second call changes nothing.
    Errors: SW903 if ``name`` is not the name of a package, is our own, or is imported already from elsewhere.
    """
    if not name.isidentifier() or name == _HOME:
        raise SpmdValueError(f"an alias is the name of another top-level package, got {name!r}", code="SW903")
    if any(isinstance(finder, _Alias) and finder.name == name for finder in sys.meta_path):
        return
    if name in sys.modules:
        raise SpmdValueError(
            f"{name} is imported already, from {getattr(sys.modules[name], '__file__', 'an unknown place')}",
            code="SW903",
            help=(f'shardwise.interop.alias.install("{name}") before the first import of {name}',),
        )
    sys.meta_path.insert(0, _Alias(name))
    _installed.add(name)


def uninstall(name: str = "spmd_types") -> None:
    """Undo ``install``: later imports of ``name`` find what they would have found without it."""
    kept = [finder for finder in sys.meta_path if not (isinstance(finder, _Alias) and finder.name == name)]
    if len(kept) == len(sys.meta_path):
        return
    sys.meta_path[:] = kept
    _installed.discard(name)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
