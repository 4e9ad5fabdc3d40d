"""The record of a run: the types of what each line of the program binds, and those at the boundary of each module.

``watched`` is entered around a program only where a ``RunRecord`` is asked for; nothing of it is on the way of a call.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from shardwise.diagnostics.run_record import (
    MadeMesh,
    ModuleTypes,
    NamedLayout,
    NamedTypes,
    RunRecord,
    counted_types,
)
from shardwise.host.bound_values import BoundValues, bindings_told
from shardwise.interop.tensors.tagging import typed_shape
from shardwise.interop.torch_compat import flattened_meshes
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh
from shardwise.mesh.layout import Layout
from shardwise.mesh.made_meshes import made_meshes
from shardwise.types.tensor_type import UNTYPED

MOST_PARTS = 8
"""Tensors of a list, tuple or dict that are told; one with more is told by their number."""


def described(value: object) -> str | None:
    """The full type of a tensor, of a list, tuple or dict those of the tensors in it; None for everything else.

    Example:
        >>> described(torch.ones(4, 8)), described((torch.ones(2), None)), described(3)
        ('f32[4, 8] {}', '(f32[2] {}, None)', None)
    """
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        try:
            typed = typed_shape(value)
        except Exception:  # a tensor class of the program may refuse to say even its shape
            return None
        text = str(typed)
        return f"{text} {{}}" if typed.type is UNTYPED and "{" not in text else text
    if kind is list or kind is tuple:
        return _of_parts([("", part) for part in value], "()" if kind is tuple else "[]")  # type: ignore[attr-defined]
    if kind is dict:
        return _of_parts([(f"{key}: ", part) for key, part in value.items() if type(key) is str], "{}")  # type: ignore[attr-defined]
    return None


def _of_parts(parts: Sequence[tuple[str, object]], brackets: str) -> str | None:
    tensors = sum(issubclass(type(part), torch.Tensor) for _, part in parts)
    if not tensors:
        return None
    if len(parts) > MOST_PARTS:
        return f"{brackets[0]}{tensors} tensors{brackets[1]}"
    return f"{brackets[0]}{', '.join(f'{name}{described(part)}' for name, part in parts)}{brackets[1]}"


@dataclass
class _Module:
    kind: str
    parameters: tuple[NamedTypes, ...]
    inputs: dict[str, Counter[str]] = field(default_factory=dict)
    outputs: dict[str, Counter[str]] = field(default_factory=dict)
    count: int = 0


class RunWatch:
    """Hears of the program's statements and modules; ``record`` is what it knows of them so far."""

    def __init__(self, bound: BoundValues, meshes: Sequence[CurrentMesh]) -> None:
        self._bound = bound
        self._meshes = meshes
        self._paths: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._roots: Counter[str] = Counter()
        self._modules: dict[str, _Module] = {}

    def record(self) -> RunRecord:
        """Everything so far."""
        values = [NamedTypes(name, counted_types(counts), span) for (name, span), counts in self._bound.counts.items()]
        modules = [
            ModuleTypes(path, one.kind, _named(one.inputs), _named(one.outputs), one.parameters, one.count)
            for path, one in self._modules.items()
            if one.count
        ]
        return RunRecord(tuple(values), tuple(modules), meshes=tuple(map(_made, self._meshes)))

    def entered(self, module: torch.nn.Module, args: tuple[object, ...]) -> None:
        """``module`` is about to be called; modules that are new are named after the outermost one."""
        if module not in self._paths:
            kind = type(module).__name__
            self._roots[kind] += 1
            root = kind if self._roots[kind] == 1 else f"{kind}#{self._roots[kind]}"
            for path, inner in module.named_modules():
                self._paths.setdefault(inner, f"{root}.{path}" if path else root)
        path = self._paths[module]
        if path not in self._modules:
            own = [(name, text) for name, one in module.named_parameters(recurse=False) if (text := described(one))]
            parameters = tuple(NamedTypes(name, ((text, 1),)) for name, text in own)
            self._modules[path] = _Module(type(module).__name__, parameters)

    def left(
        self, module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """A call of ``module`` has given ``output``."""
        known = self._modules.get(self._paths.get(module, ""))
        if known is None:
            return
        known.count += 1
        _count(known.inputs, _arguments(module, args, kwargs))
        parts = output.items() if type(output) is dict else [("", output)]
        _count(known.outputs, [(str(name), part) for name, part in parts])


def _arguments(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Iterable[tuple[str, object]]:
    try:
        bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return [*((f"args[{at}]", one) for at, one in enumerate(args)), *kwargs.items()]
    return list(bound.items())


def _count(counts: dict[str, Counter[str]], values: Iterable[tuple[str, object]]) -> None:
    for name, value in values:
        text = described(value)
        if text is not None:
            counts.setdefault(name, Counter())[text] += 1


def _named(counts: Mapping[str, Counter[str]]) -> tuple[NamedTypes, ...]:
    return tuple(NamedTypes(name, counted_types(each)) for name, each in counts.items())


def _made(mesh: CurrentMesh) -> MadeMesh:
    flattened: dict[str, Any] = {} if mesh.device_mesh is None else {**flattened_meshes(mesh.device_mesh)}
    layouts = {name: axis.layout for name, axis in mesh.all_names.items()}
    found = {name: MeshAxis.of(one.get_group()).layout for name, one in flattened.items() if name not in layouts}
    return MadeMesh(_named_layouts(layouts), _named_layouts(found))


def _named_layouts(layouts: Mapping[str, Layout]) -> tuple[NamedLayout, ...]:
    return tuple(NamedLayout(name, layout.sizes, layout.strides) for name, layout in layouts.items())


@contextlib.contextmanager
def watched() -> Iterator[RunWatch]:
    """What the program does inside the block, on this thread, is recorded."""
    with contextlib.ExitStack() as stack:
        watch = RunWatch(stack.enter_context(bindings_told(described)), stack.enter_context(made_meshes()))
        stack.callback(register_module_forward_pre_hook(watch.entered).remove)
        stack.callback(register_module_forward_hook(watch.left, with_kwargs=True).remove)
        yield watch
