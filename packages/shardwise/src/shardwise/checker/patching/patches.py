"""The functions of torch that are replaced while some thread checks, and what makes them plug-ins that may switch off.

A part of the library is one ``Plugin`` in a file of its own. Its ``install`` replaces functions through ``Patches``,
which puts them back. Where the installed torch does not have what a plug-in needs, all that it has replaced is put
back, and every report says what is not followed. What every check needs is of tier 1: without it there is no check.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from shardwise.interop.running.session import current
from shardwise.interop.torch_compat import PatchPoint, function_modes, in_backward, resolve

from ..mode import CheckMode
from ..state.session import CheckSession

Wrap = Callable[[Any], Any]
Wrappers = Mapping[Callable[..., object], Callable[..., object]]


@dataclass(frozen=True)
class Plugin:
    """One part of the library that function modes do not show.

    ``part``        what is followed, as a report names it; ``tier`` 1 is needed by every check.
    ``install``     replaces the functions. Errors: MissingName where torch has them no more.
    ``is_ready``    False while the part is not loaded; asked again whenever a parameter is made.
    ``everywhere``  the functions that are replaced under every name that a module has for them, by what takes their
        place; after ``install``. Errors: MissingName.
    """

    part: str
    install: Callable[[Patches], None] = lambda patches: None
    tier: int = 2
    is_ready: Callable[[], bool] = lambda: True
    everywhere: Callable[[], Wrappers] = dict


class Patches:
    """What one plug-in has replaced, and how it is put back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, point: PatchPoint, wrap: Wrap) -> None:
        """Put ``wrap(original)`` in the place of a private function. Errors: MissingName."""
        resolve(point.name)
        self.replace_attribute(point.owner(), point.attribute, wrap)

    def replace_attribute(self, owner: object, name: str, wrap: Wrap) -> None:
        """Put ``wrap(original)`` in the place of a public function."""
        original = vars(owner)[name]
        setattr(owner, name, wrap(original))
        self.on_undo(functools.partial(setattr, owner, name, original))

    def replace_everywhere(self, wrappers: Wrappers) -> None:
        """Put the wrapper of each function under every name that a module has for it."""
        for namespace, name, function in _held(wrappers):
            namespace[name] = wrappers[function]
            self.on_undo(functools.partial(namespace.__setitem__, name, function))

    def on_undo(self, undo: Callable[[], None]) -> None:
        """Have ``undo`` called when everything is put back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back, the last first."""
        while self._undo:
            self._undo.pop()()


def checking_session() -> CheckSession | None:
    """The check of this thread; None while one of its handlers runs an operator, or autograd a backward pass."""
    session = current()
    if not isinstance(session, CheckSession) or (in_backward() and not session.in_typed_code):
        return None
    seen = any(isinstance(mode, CheckMode) and mode.session is session for mode in function_modes())
    return session if seen else None


CALM = 3
"""After so many searches in which a module had no other names than before, it is searched no more."""

_lengths: dict[str, int] = {}
"""How many names each module had when it was last searched; -1 before that."""
_calm: dict[str, int] = {}
"""The modules that are still searched, with the number of searches in which they had no other names."""
_places: dict[tuple[str, str], None] = {}
"""Modules and names in them that had a function which is replaced everywhere; another one may stand there by now."""
_wanted: dict[int, Callable[..., Any]] = {}


def look_for(functions: Iterable[Callable[..., object]]) -> None:
    """Have the next search find these functions as well; a plug-in after the other would search every module anew."""
    wanted = {id(function): function for function in functions}
    if not wanted.keys() <= _wanted.keys():
        _wanted.update(wanted)
        _lengths.clear()


def _held(
    functions: Mapping[Callable[..., object], object],
) -> Iterator[tuple[dict[str, object], str, Callable[..., object]]]:
    """Every name under which a module has one of ``functions``.

    A process has thousands of modules and starts a check often, so a module that has come to rest is left out.
    """
    wanted = {id(function): function for function in functions}
    look_for(functions)
    if len(sys.modules) != len(_lengths):
        for name in _lengths.keys() - sys.modules.keys():
            del _lengths[name]
        new = dict.fromkeys(sys.modules.keys() - _lengths.keys(), -1)
        _lengths.update(new)
        _calm.update(dict.fromkeys(new, 0))
    for name, calm in list(_calm.items()):
        module = sys.modules.get(name)
        if not isinstance(module, ModuleType) or (calm >= CALM and name != "__main__"):
            del _calm[name]
        elif _lengths[name] == len(vars(module)):
            _calm[name] = calm + 1
        else:
            _lengths[name] = len(vars(module))
            if not _wanted.keys().isdisjoint(map(id, vars(module).values())):
                held = [key for key, value in list(vars(module).items()) if id(value) in _wanted]
                _places.update({(name, key): None for key in held})
    for name, key in list(_places):
        namespace = vars(sys.modules[name]) if name in sys.modules else {}
        function = wanted.get(id(namespace.get(key)))
        if function is not None:
            yield namespace, key, function
