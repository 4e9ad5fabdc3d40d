"""A run moved by roundings: every result, parameter and gradient is off by up to one unit in the last place.

A mesh sums in another order than one rank, so its results round otherwise, and so does all that follows from them. How
far a tensor is from itself in such a run says how far that may bring it.

    bf16, 96 layers: the output of layer 1 moves by 0.4 % of its size, that of layer 96 by 3 %
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.local_form import local_tensor
from shardwise.interop.torch_compat import no_torch_function

from ..records.intervention import Intervention


class Perturbation:
    """Moves tensors by roundings of ``dtype``; numbers of its own, the program's generators stay as they are.

    ``finer``  those of finer dtypes too.
    """

    def __init__(self, dtype: torch.dtype, seed: int, *, finer: bool = False) -> None:
        self._eps = torch.finfo(dtype).eps
        self._finest = 0.0 if finer else self._eps
        # No parameter is used in float8, nor a gradient sent, without a cast, which is a result of its own.
        self._eps_of_parameters = min(self._eps, torch.finfo(torch.bfloat16).eps)
        self._generator = torch.Generator().manual_seed(seed)

    @classmethod
    def of(cls, intervention: Intervention | None) -> Perturbation | None:
        """None where nothing is to be moved."""
        if intervention is None or intervention.rounding is None:
            return None
        return cls(intervention.rounding, intervention.seed, finer=intervention.rounds_products)

    def result(self, args: Iterable[object], result: object) -> None:
        """Move what an operation has computed in this dtype, or a coarser one, in memory of its own."""
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor) and self._is_rounded(x) and _is_computed(args, x):
                self._move(x, self._eps)
                if x.requires_grad and x.grad_fn is not None and not is_dtensor(x):
                    x.register_hook(self._moved)  # type: ignore[no-untyped-call]

    def parameter(self, x: torch.Tensor) -> None:
        """Move a parameter, or a gradient that enters an optimizer: in this dtype it is used, or sent."""
        local = local_tensor(x)
        if local.is_floating_point() and local.numel() and local.untyped_storage().nbytes():
            self._move(local, self._eps_of_parameters)

    def _is_rounded(self, x: torch.Tensor) -> bool:
        return x.is_floating_point() and torch.finfo(x.dtype).eps >= self._finest and x.layout is torch.strided

    def _move(self, x: torch.Tensor, eps: float) -> None:
        with torch.no_grad():
            local = local_tensor(x).data  # without a new version: exp and softmax save what they give for backward
            if all(stride or size == 1 for size, stride in zip(local.shape, local.stride(), strict=True)):
                local.copy_(self._off(local, eps))

    def _moved(self, gradient: torch.Tensor) -> torch.Tensor:
        """``gradient`` moved, and part of the graph where it is: it may be differentiated again."""
        with no_torch_function():
            return (
                self._off(gradient, self._eps) if not is_dtensor(gradient) and self._is_rounded(gradient) else gradient
            )

    def _off(self, x: torch.Tensor, eps: float) -> torch.Tensor:
        noise = torch.rand(x.shape, generator=self._generator, dtype=torch.float64)
        wide = x.to(torch.float64)
        return (wide + wide * (noise.to(x.device) * 2 - 1) * eps).to(x.dtype)


def _is_computed(args: Iterable[object], x: torch.Tensor) -> bool:
    """Is ``x`` made of floating-point operands, and neither one of them nor a view of one?"""
    given = [one for arg in args for one in (arg if isinstance(arg, Sequence) else (arg,))]
    floats = [one for one in given if isinstance(one, torch.Tensor) and one.is_floating_point()]
    return bool(floats) and all(not _shares(one, x) for one in floats)


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = local_tensor(one), local_tensor(other)
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
