"""The registry of PyTorch's private names: what each is for, since and until which torch, what is lost without it.

A name is dotted: ``torch._C._len_torch_function_stack``. ``Class:_name`` is an attribute that instances of it get, and
``function(_name)`` a parameter. Tier 1 is what every check needs; tier 2 belongs to parts that switch themselves off
(``checker/patching``) and say so. ``shardwise doctor`` lists what the installed torch does not have.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

import torch

from shardwise.diagnostics.errors import SpmdTypeError

Accessor = TypeVar("Accessor", bound=Callable[..., Any])

TESTED = ("2.13.0", "2.14.1")
"""The first and the last torch that the tests were run with; ``make matrix`` runs them."""


@dataclass(frozen=True, slots=True)
class PrivateName:
    """One private name.

    ``purpose``  what it is for, and why no public name will do.
    ``lost``     what is not checked, or does not work, without it.
    ``since``, ``until``  the first and the last torch that have it, as far as is known; empty: to this day.
    """

    name: str
    purpose: str
    lost: str
    tier: int = 1
    since: str = TESTED[0]
    until: str = ""

    @property
    def expected(self) -> bool:
        """True if the installed torch is one that has it, by what is known; one before those that were tested is
        measured by the first of them.
        """
        here = max(_version(torch.__version__), _version(TESTED[0]))
        return _version(self.since) <= here and (not self.until or here[:2] <= _version(self.until)[:2])


class MissingName(SpmdTypeError, AttributeError):
    """The installed torch does not have a private name."""


@dataclass(frozen=True, slots=True)
class PatchPoint:
    """A function of torch that is replaced while some thread checks: its owner is a module or a class."""

    name: str

    def owner(self) -> object:
        """The module or class that has it. Errors: MissingName."""
        return resolve(self.name.rpartition(".")[0])

    @property
    def attribute(self) -> str:
        return self.name.rpartition(".")[2]

    def is_loaded(self) -> bool:
        """True if the module that it is in has been imported."""
        parts = self.name.split(".")
        return any(".".join(parts[:length]) in sys.modules for length in range(len(parts) - 1, len(parts) - 3, -1))


_registry: dict[str, PrivateName] = {}


def registered() -> tuple[PrivateName, ...]:
    """All names, in the order of the modules."""
    return tuple(_registry.values())


def declare(*names: str, purpose: str, lost: str, tier: int = 1, since: str = TESTED[0], until: str = "") -> None:
    """Register names that are used where torch is not loaded, or as parts of longer names."""
    for name in names:
        known = _registry.get(name)
        if known is None or known.tier > tier:
            _registry[name] = PrivateName(name, purpose, lost, tier, since, until)


def private(
    *names: str, lost: str, tier: int = 1, since: str = TESTED[0], until: str = ""
) -> Callable[[Accessor], Accessor]:
    """Register the names that the decorated function uses; its docstring says what for."""

    def decorate(accessor: Accessor) -> Accessor:
        purpose = (inspect.getdoc(accessor) or "").partition("\n\n")[0].replace("\n", " ")
        declare(*names, purpose=purpose, lost=lost, tier=tier, since=since, until=until)
        return accessor

    return decorate


def constant(name: str, *, purpose: str, lost: str, since: str = TESTED[0], until: str = "") -> object:
    """The object called ``name``, registered. Errors: MissingName, for nothing works without it."""
    declare(name, purpose=purpose, lost=lost, since=since, until=until)
    return resolve(name)


def patch_point(
    name: str, *, purpose: str, lost: str, tier: int = 1, since: str = TESTED[0], until: str = ""
) -> PatchPoint:
    """The function called ``name``, to be replaced while some thread checks; registered."""
    declare(name, purpose=purpose, lost=lost, tier=tier, since=since, until=until)
    return PatchPoint(name)


def resolve(name: str) -> object:
    """The object called ``name``; for an attribute of instances or a parameter, what has it. Errors: MissingName."""
    path, _, attribute = name.replace("(", ":").rstrip(")").partition(":")
    module, *rest = _split(path)
    found = module
    for part in rest:
        found = _attribute(found, part, name)
    if "(" in name and attribute not in inspect.signature(found).parameters:
        raise _missing(name)
    if "(" not in name and attribute and not _has(found, attribute):
        raise _missing(name)
    return found


def outside() -> str:
    """How the installed torch stands to those that the tests were run with: empty, ``older`` or ``newer``."""
    here = _version(torch.__version__)
    if here < _version(TESTED[0]):
        return "older"
    return "newer" if here[:2] > _version(TESTED[1])[:2] else ""


def missing() -> list[PrivateName]:
    """What the installed torch does not have of what it is expected to have; imports all of it, which takes seconds."""
    return [private for private in registered() if private.expected and not _is_there(private.name)]


def _is_there(name: str) -> bool:
    try:
        resolve(name)
    except (MissingName, ImportError):
        return False
    return True


def _split(path: str) -> tuple[Any, ...]:
    """The innermost module of a dotted name, and the names below it."""
    module = _module_in(path)
    below = path[len(module) + 1 :]
    return sys.modules.get(module) or importlib.import_module(module), *(below.split(".") if below else ())


@functools.cache
def _module_in(path: str) -> str:
    """The name of the innermost module of a dotted name. Every check asks, and to find that one is none is slow."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not path.startswith(str(error.name)):
                raise
        else:
            return name
    raise _missing(path)


def _attribute(owner: object, name: str, whole: str) -> object:
    try:
        return getattr(owner, name)
    except AttributeError:
        raise _missing(whole) from None


def _missing(name: str) -> MissingName:
    known = _registry.get(name)
    lost = "" if known is None else f"; without it there is no support for: {known.lost}"
    return MissingName(
        f"torch {torch.__version__} does not have {name}{lost}",
        code="SW903",
        help=(f"a torch from {TESTED[0]} to {TESTED[1]}, which this version of shardwise was tested with",),
    )


def _has(cls: type, attribute: str) -> bool:
    """True if instances of ``cls`` get the attribute: it is declared, or a method of the class speaks of it."""
    if hasattr(cls, attribute):
        return True
    return any(
        attribute in getattr(base, "__annotations__", {})
        or attribute in getattr(base, "__slots__", ())
        or any(attribute in _spoken(code) for code in _codes(base))
        for base in cls.__mro__
    )


def _codes(cls: type) -> Iterator[CodeType]:
    for value in vars(cls).values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        function = inspect.unwrap(function) if callable(function) else function
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code


@functools.cache
def _spoken(code: CodeType) -> frozenset[str]:
    inner = [_spoken(const) for const in code.co_consts if isinstance(const, CodeType)]
    texts = {const for const in code.co_consts if isinstance(const, str)}
    return frozenset({*code.co_names, *texts}).union(*inner)


def _version(text: str) -> tuple[int, ...]:
    numbers = text.partition("+")[0].split(".")[:3]
    return tuple(int(number) for number in numbers if number.isdigit())
