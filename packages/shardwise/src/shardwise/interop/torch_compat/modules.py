"""Modules: the names of their parts, and the hooks that wrappers have on communication."""

from __future__ import annotations

from typing import Any

import torch

from .registry import declare, patch_point, private

declare(
    "torch.nn.Module:_parameters",
    "torch.nn.Module:_buffers",
    "torch.nn.Module:_modules",
    purpose="operands are called as the program calls them, by looking into modules without running code of theirs "
    "(diagnostics/operands.py, which does not load torch)",
    lost="names of parameters in findings",
)
APPLY_HOOK_TO_INPUT = patch_point(
    "torch.utils.hooks.BackwardHook.setup_input_hook",
    purpose="where a module's backward hook learns of the inputs",
    lost="backward hooks on modules",
)
APPLY_HOOK_TO_OUTPUT = patch_point(
    "torch.utils.hooks.BackwardHook.setup_output_hook",
    purpose="where a module's backward hook learns of the outputs",
    lost="backward hooks on modules",
)
MAKE_BACKWARD_HOOK = patch_point(
    "torch.utils.hooks.BackwardHook.__init__",
    purpose="where a module's backward hooks are put together",
    lost="backward hooks on modules",
)


@private(
    "torch.nn.parallel.DistributedDataParallel:_comm_hooks",
    lost="hooks of DistributedDataParallel",
)
def communication_hooks(wrapper: Any) -> list[tuple[object, object]]:
    """The communication hooks of a ``DistributedDataParallel`` with their states: the list itself, to be added to."""
    hooks: list[tuple[Any, Any]] = wrapper._comm_hooks
    return hooks


@private(
    "torch.nn.parallel.DistributedDataParallel:_module_parameters",
    lost="gradients of parameters that DistributedDataParallel averages and its module holds no more",
)
def reduced_parameters(wrapper: torch.nn.parallel.DistributedDataParallel) -> list[torch.Tensor]:
    """The parameters whose gradients a ``DistributedDataParallel`` averages: those that its module had when it was
    wrapped. Beside tensor parallelism the module has DTensors in their place from the first forward on.
    """
    parameters: list[torch.Tensor] = wrapper._module_parameters
    return parameters
