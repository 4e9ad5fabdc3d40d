"""``torch.func``: what vmap and derivatives wrap, and where they do it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .registry import constant, patch_point, private

RUN_VMAP = patch_point(
    "torch._functorch.vmap._flat_vmap",
    purpose="where vmap runs; there is no public hook, and the wrapped tensors are new objects without attributes",
    lost="types under vmap",
    tier=2,
)
WRAP_VMAP_INPUTS = patch_point(
    "torch._functorch.vmap._create_batched_inputs",
    purpose="where vmap wraps its inputs",
    lost="types under vmap",
    tier=2,
)
UNWRAP_VMAP_OUTPUTS = patch_point(
    "torch._functorch.vmap._unwrap_batched",
    purpose="where vmap unwraps its outputs",
    lost="types under vmap",
    tier=2,
)
WRAP_FOR_DERIVATIVE = patch_point(
    "torch._functorch.eager_transforms._wrap_tensor_for_grad",
    purpose="where ``torch.func.grad`` and ``vjp`` wrap their inputs",
    lost="types in derivatives of torch.func",
    tier=2,
)
UNWRAP_DERIVATIVE = patch_point(
    "torch._functorch.eager_transforms._undo_create_differentiable",
    purpose="where ``torch.func.grad`` and ``vjp`` unwrap their outputs",
    lost="types in derivatives of torch.func",
    tier=2,
)
FUNC_BASIS = patch_point(
    "torch._functorch.eager_transforms._chunked_standard_basis_for_",
    purpose="where ``jacrev`` and ``jacfwd`` list the elements of a tensor",
    lost="jacobians of sharded tensors",
    tier=2,
)
FUNCTIONAL_BASIS = patch_point(
    "torch.autograd.functional._construct_standard_basis_for",
    purpose="where ``torch.autograd.functional.jacobian`` lists the elements of a tensor",
    lost="jacobians of sharded tensors",
    tier=2,
)
RUN_DERIVATIVE = patch_point(
    "torch._functorch.eager_transforms._autograd_grad",
    purpose="where ``torch.func`` runs backward",
    lost="types in derivatives of torch.func",
    tier=2,
)
transforms_active: Callable[[], bool] = constant(  # type: ignore[assignment]
    "torch._C._are_functorch_transforms_active",
    purpose="whether a vmap or a derivative of ``torch.func`` is at work, which want functions written for them",
    lost="collectives inside transforms of torch.func",
)
COMPILERS_NOTES = frozenset({"mutated_arg_indices"})
"""Arguments of higher-order operators that only the compiler reads: since torch 2.14, what a body writes to."""
COMPILE_AND_CALL = patch_point(
    "torch._higher_order_ops.utils._hop_compile_and_call",
    purpose="where ``cond``, ``while_loop``, ``scan`` and ``map`` compile what they run",
    lost="cond, scan and their like outside of torch.compile",
    tier=2,
)


@private(
    "torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack",
    lost="cond, scan and their like under vmap",
    tier=2,
)
def outside_transforms() -> contextlib.AbstractContextManager[object]:
    """Inside, no vmap and no derivative of ``torch.func`` is at work: plain tensors are plain tensors."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    cleared: contextlib.AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return cleared


@private(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.is_batchedtensor",
    "torch._C._functorch.get_unwrapped",
    lost="cond under vmap",
    tier=2,
)
def is_batched(x: object) -> bool:
    """True if vmap computes with ``x``, at any depth of transforms: it has a value per element, and none of its own."""
    functorch = torch._C._functorch
    while isinstance(x, torch.Tensor) and functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


@private(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.get_unwrapped",
    lost="types under vmap and in derivatives of torch.func",
    tier=2,
)
def takes_gradient(x: torch.Tensor) -> bool:
    """True if a gradient can flow into ``x``; vmap's stand-in of a tensor into which one can says no by itself."""
    functorch = torch._C._functorch
    while not x.requires_grad and functorch.is_functorch_wrapped_tensor(x):
        x = functorch.get_unwrapped(x)
    return x.requires_grad


@private(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.get_unwrapped",
    lost="types under vmap and in derivatives of torch.func",
    tier=2,
)
def within_transforms(x: torch.Tensor) -> torch.Tensor:
    """What a stand-in of vmap or of a derivative stands for; any other tensor itself."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        x = functorch.get_unwrapped(x)
    return x


@private(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    lost="types under vmap and in derivatives of torch.func",
    tier=2,
)
def is_transformed(x: torch.Tensor) -> bool:
    """True for the stand-in that vmap or a derivative of ``torch.func`` computes with."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))
