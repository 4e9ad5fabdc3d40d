"""What torch says of its operators: parameters, aliases and tags, from schemas, signatures and the op database.

Names are the registry's: ``linalg.norm`` for ``linalg_norm``; ``torch.dropout`` where ``nn.functional.dropout``, which
has the plain name, takes its parameters in another order.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import ModuleType
from typing import Any

import torch
from torch.overrides import get_overridable_functions

from shardwise.interop.torch_compat import aten_overloads, op_database, schema_of

_PREFIXES = ("linalg", "fft", "special")
_FACTORY = {"out", "layout", "device", "pin_memory", "generator", "requires_grad"}
"""Parameters of no interest here: they say where and how a result is made."""
_INPUT = {"self", "x", "tensor"}
"""Names that torch gives to the first operand besides ``input``."""
_UNUSED = ("_", "cudnn_", "miopen_", "mkldnn_", "fbgemm_", "quantized_")
"""Beginnings of names that programs do not call: private ones, and kernels of one library."""
REFUTED: Mapping[str, Mapping[str, str]] = {
    "pointwise": {
        "equal": "one truth value for all elements",
        "max": "element by element for two operands; a reduction for one",
        "min": "element by element for two operands; a reduction for one",
    },
}
"""By tag, the operators of which the numeric oracle says that it is wrong, and what they do."""


@dataclass
class Metadata:
    """What torch says, by name.

    ``parameters``  names of the parameters, in positional order; those that go by keyword only stand last.
    ``aliases``     the names of one operator, under its own.
    ``pointwise``   tagged as working element by element. ``views``: a result that may share the operand's memory.
    ``seeded``      tagged as drawing from a random generator.
    """

    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pointwise: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()
    seeded: frozenset[str] = frozenset()


def metadata() -> Metadata:
    """Of the torch that is installed."""
    schemas = _schemas()
    parameters = {name: _positional(found) for name, found in schemas.items()}
    for space, prefix in ((torch, ""), (torch.linalg, "linalg.")):
        parameters |= {prefix + name: names for name, names in _python(space)}
    for name, names in _python(torch.nn.functional):
        if parameters.get(name, names) != names:
            parameters[f"torch.{name}"] = parameters[name]
        parameters[name] = names
    tags = {name: {tag for each in found for tag in each.tags} for name, found in schemas.items()}
    pointwise = frozenset(name for name, found in tags.items() if torch.Tag.pointwise in found)
    return Metadata(
        parameters={name: names for name, names in parameters.items() if names},
        aliases=_aliases(),
        pointwise=pointwise - REFUTED["pointwise"].keys(),
        views=frozenset(name for name, found in schemas.items() if any(map(_is_view, found))),
        seeded=frozenset(name for name, found in tags.items() if torch.Tag.nondeterministic_seeded in found),
    )


def _schemas() -> dict[str, list[Any]]:
    """The overloads of every operator that takes a tensor and gives its result back."""
    found: dict[str, list[Any]] = defaultdict(list)
    for name, overloads in aten_overloads().items():
        if name.startswith(_UNUSED) or name.endswith(("_backward", "_out")) or not _is_called(_canonical(name)):
            continue
        for operator in overloads:
            schema = schema_of(operator)
            arguments = schema.arguments
            if schema.overload_name.endswith("out") or not any("Tensor" in str(one.type) for one in arguments):
                continue
            found[_canonical(name)].append(operator)
    # An in-place form is the plain operator, written into its operand.
    return {name: each for name, each in found.items() if not (name.endswith("_") and name[:-1] in found)}


def _is_called(name: str) -> bool:
    """True if a program finds the operator somewhere else than among ``torch.ops``."""
    space, _, last = f".{name}".rpartition(".")
    homes = (torch, torch.Tensor, torch.nn.functional) if not space else (getattr(torch, space.strip(".")),)
    return any(hasattr(home, last) for home in homes)


def _canonical(name: str) -> str:
    head, _, tail = name.partition("_")
    return f"{head}.{tail}" if head in _PREFIXES and tail else name


def _positional(overloads: list[Any]) -> tuple[str, ...]:
    """Of the overload with the most positional parameters, with those that go by keyword only behind them."""
    listed = [
        [argument for argument in schema.arguments if argument.name not in _FACTORY]
        for schema in map(schema_of, overloads)
        if "Dimname" not in str(schema)
    ]
    longest = max(listed, key=lambda one: (sum(not argument.kwarg_only for argument in one), len(one)), default=[])
    return _with_input(argument.name for argument in sorted(longest, key=lambda one: one.kwarg_only))


def _with_input(names: Iterator[str]) -> tuple[str, ...]:
    listed = tuple(names)
    return tuple("input" if name in _INPUT and "input" not in listed else name for name in listed)


def _python(space: ModuleType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The operators of a name space that are written in Python, whose signatures say what a program may write."""
    overridable = {*chain.from_iterable(get_overridable_functions().values())}
    for name, function in sorted(vars(space).items()):
        if not inspect.isfunction(function) or function not in overridable:
            continue
        parameters = inspect.signature(function).parameters.values()
        if not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
            yield name, _with_input(one.name for one in parameters if one.name not in _FACTORY)


def _is_view(operator: Any) -> bool:
    arguments, returns = schema_of(operator).arguments, schema_of(operator).returns
    if not arguments or not returns or arguments[0].alias_info is None or returns[0].alias_info is None:
        return False
    return not arguments[0].alias_info.is_write


def _aliases() -> dict[str, tuple[str, ...]]:
    """Further names of operators, as the op database lists them, by the operator's own name."""
    found: dict[str, set[str]] = defaultdict(set)
    database = op_database()
    own = {_plain(entry.name) for entry in database}
    for entry in database:
        found[_plain(entry.name)] |= {_plain(alias.name) for alias in entry.aliases} - own
    return {name: tuple(sorted(names)) for name, names in sorted(found.items()) if names}


def _plain(name: str) -> str:
    return name.removeprefix("torch.").removeprefix("nn.functional.")
