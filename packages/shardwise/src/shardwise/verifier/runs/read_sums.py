"""Numbers that a program reads of sums over all ranks: the losses and metrics that it prints.

    dist.all_reduce(total); dist.all_reduce(count); print((total / count).item())

What is computed of such sums and of nothing else is the same on every rank, so one rank is enough to read it. What else
is read at a line is counted: of two norms of which one is summed over all ranks, one rank may read the second alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist

from shardwise.interop.calls.op_names import op_name
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.torch_compat import no_torch_function
from shardwise.oracle.simulated_ranks.collectives import NotSimulated, call_of

_READS = (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__, torch.Tensor.__format__)


class ReadSums:
    """Follows sums over all ranks to where a number is read of them."""

    def __init__(self, heard: Callable[[torch.Tensor, bool], object]) -> None:
        self._heard = heard
        """Told of the tensor that is read, and whether it is such a sum."""
        self._global: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        """Sums over all ranks, and what is computed of them alone, by id."""

    def before(self, func: Callable[..., object], args: Sequence[object]) -> None:
        """``func`` is about to be called: does it read a number?"""
        x = args[0] if args else None
        if func in _READS and isinstance(x, torch.Tensor):
            with no_torch_function():
                if x.numel() == 1 and x.is_floating_point():
                    self._heard(x, self._is_global(x))

    def after(
        self,
        func: Callable[..., object],
        collective: tuple[str, bool] | None,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        result: object,
    ) -> None:
        """``func`` has been called; ``collective`` is its name and whether it is a functional one, if it is one."""
        if collective is not None:
            self._collective(*collective, args, kwargs, result)
        elif self._global and op_name(func).prop is None:
            given = tensors_in([*args, *kwargs.values()])
            if any(map(self._is_global, given)):
                made = given[:1] if func is torch.Tensor.__setitem__ else tensors_in(result)
                self._mark(made, all(map(self._is_global, given)))

    def _collective(
        self, name: str, functional: bool, args: Sequence[object], kwargs: Mapping[str, object], result: object
    ) -> None:
        try:
            call = call_of(name, args, kwargs, functional)
        except NotSimulated:
            return
        size = dist.get_world_size() if call.group is None else dist.get_world_size(call.group)
        op = call.given.get("op", dist.ReduceOp.SUM)
        adds = str(op).rpartition(".")[2].lower() in ("sum", "avg")
        whole = name.rstrip("_") == "all_reduce" and adds and size == dist.get_world_size()
        self._mark(call.received or tensors_in(result), whole)

    def _is_global(self, x: torch.Tensor) -> bool:
        return self._global.get(id(x)) is x

    def _mark(self, made: Sequence[torch.Tensor], is_global: bool) -> None:
        for x in made:
            if is_global:
                self._global[id(x)] = x
            else:
                self._global.pop(id(x), None)
