"""What is done to a module of a library once a script has loaded it: to load it for the script would take a second."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


@contextlib.contextmanager
def when_loaded(name: str, then: Callable[[ModuleType], None]) -> Iterator[None]:
    """``then`` is called with the module ``name`` now, or when it is loaded inside the ``with`` block.

    Example:
        >>> with when_loaded("math", lambda module: print(module.tau)):
        ...     pass
        6.283185307179586
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        then(loaded)
        yield
        return
    finder = _Waiting(name, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


class _Waiting(MetaPathFinder):
    """Finds nothing itself: the other finders find the module, and its loader tells when it is loaded."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            self.then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
