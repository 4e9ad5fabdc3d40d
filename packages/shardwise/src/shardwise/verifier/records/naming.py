"""What is a parameter called? Its path from the outermost module that has it, the same in every run of a program.

Modules are remembered as they are built, because a program's modules may be gone when its gradients are looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from shardwise.interop.running.wrappers import plain_class, plain_name, wrapped_by
from shardwise.interop.torch_compat import no_torch_function

NAMELESS = "parameter "
"""What the number of a parameter follows that no module has."""
UNCALLED = (torch.nn.ModuleList, torch.nn.ModuleDict)
"""Modules that only hold others."""


class Names:
    """The modules that a program builds while ``watching``, and by them the names of its parameters."""

    def __init__(self) -> None:
        self._modules: dict[int, torch.nn.Module] = {}
        self._parents: dict[int, set[int]] = {}
        self._paths: dict[int, str] | None = None
        self._registered: dict[int, dict[str, torch.nn.Parameter]] = {}
        """The parameters that each module was given, by its id and their names."""
        self._met: set[int] = set()
        self._variables: dict[int, tuple[str, torch.Tensor]] = {}
        """What the program calls parameters that no module has, by id."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        handles = (
            register_module_parameter_registration_hook(self._has_parameter),
            register_module_module_registration_hook(self._has_module),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def meet(self, module: torch.nn.Module) -> None:
        """``module``, an outermost one, is called: nothing is registered where one is copied from another."""
        if id(module) in self._met:
            return
        self._met.add(id(module))
        self._paths = None
        for inner in module.modules():
            self._modules.setdefault(id(inner), inner)
            for child in inner.children():
                self._parents.setdefault(id(child), set()).add(id(inner))

    def is_outermost(self, module: torch.nn.Module) -> bool:
        """Is no other module known that has ``module`` and can be called?"""
        parents = [self._modules[key] for key in self._parents.get(id(module), ())]
        return all(isinstance(parent, UNCALLED) and self.is_outermost(parent) for parent in parents)

    def replaced_in(self, module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
        """Parameters in whose places tensors are that are none, as ``torch.func.functional_call`` puts them there."""
        for inner in module.modules():
            known = self._registered.get(id(inner), {})
            now = dict(inner.named_parameters(recurse=False, remove_duplicate=False)) if known else {}
            yield from (
                parameter
                for name, parameter in known.items()
                if not isinstance(now.get(name, parameter), torch.nn.Parameter)
            )

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Every parameter of the modules built so far, by name; equal names of several models are numbered.

        A model without values, of which stages of a pipeline copy their parts, is numbered behind those that have some.
        """
        named: dict[str, torch.nn.Parameter] = {}
        with no_torch_function():
            roots = sorted(self._roots(), key=_is_outline)
        for module in roots:
            for name, parameter in module.named_parameters():
                name = plain_name(name)
                if named.get(name, parameter) is not parameter:
                    name = next(new for n in range(2, len(named) + 3) if (new := f"{name} ({n})") not in named)
                named[name] = parameter
        return named

    def of_module(self, module: torch.nn.Module) -> str | None:
        """The path of a module and its class; empty for roots and wrappers, None for what no registered module has."""
        if self._paths is None or id(module) not in self._paths:
            self._paths = {}
            for root in self._roots():
                for path, inner in root.named_modules():
                    path = plain_name(f"{path}.").removesuffix(".") if wrapped_by(inner) is None else ""
                    self._paths.setdefault(id(inner), f"{path} ({plain_class(inner)})" if path else "")
        return self._paths.get(id(module))

    def call(self, parameter: torch.Tensor, name: str) -> None:
        """A parameter that no module has is called ``name``."""
        self._variables[id(parameter)] = (name, parameter)  # kept, so that no other tensor gets its id

    def of(self, parameters: Iterable[torch.Tensor]) -> list[str]:
        """The name of each; its position for one that neither a module nor a variable is known to have."""
        known = {key: name for key, (name, _) in self._variables.items()}
        for name, parameter in self.parameters().items():
            known.setdefault(id(parameter), name)
        return [known.get(id(parameter), f"{NAMELESS}{at}") for at, parameter in enumerate(parameters)]

    def _roots(self) -> list[torch.nn.Module]:
        return [module for key, module in self._modules.items() if key not in self._parents]

    def _has_parameter(self, module: torch.nn.Module, name: str, parameter: object) -> None:
        self._modules.setdefault(id(module), module)
        if isinstance(parameter, torch.nn.Parameter):
            self._registered.setdefault(id(module), {})[name] = parameter

    def _has_module(self, module: torch.nn.Module, name: str, child: object) -> None:
        self._modules.setdefault(id(module), module)
        if isinstance(child, torch.nn.Module):
            self._modules.setdefault(id(child), child)
            self._parents.setdefault(id(child), set()).add(id(module))


def _is_outline(module: torch.nn.Module) -> bool:
    """Are all parameters of a model without values?"""
    return all(parameter.is_meta for parameter in module.parameters())
