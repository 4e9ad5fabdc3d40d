"""The calls of torch that are made otherwise where there is no accelerator: moves, values of tensors without storage.

``SPECIAL`` has what is called in place of each.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.source import user_site
from shardwise.interop.running import session
from shardwise.interop.torch_call import Keywords, TorchFunction
from shardwise.interop.torch_compat import (
    is_fake,
    no_torch_function,
    parse_to,
)

from .cuda_stand_ins import (
    TensorTypeName,
)
from .gpu_kernels import GPU_KERNELS

HERE = {"cpu", "meta"}
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor")
"""Those that take an operation; not every torch has all of them."""

CLEARED_BYTES = 1 << 20
"""Of larger tensors that are left open the memory is not touched."""


@dataclass(frozen=True)
class Target:
    """Where tensors live: ``device`` is ``cpu`` or ``meta``; ``fake`` tensors have a device but no storage.

    ``imagined``  nothing arrives from other ranks, so that what is to be received stays as it was made.
    """

    device: str = "cpu"
    fake: bool = False
    imagined: bool = False

    @property
    def has_values(self) -> bool:
        return self.device != "meta" and not self.fake


def is_accelerator(device: object) -> bool:
    """True for a device, a device string or a device number that is not the CPU or meta."""
    if isinstance(device, torch.device):
        return device.type not in HERE
    if isinstance(device, str):
        return device.partition(":")[0] in {"cuda", "xpu", "hpu", "npu", "mps", "mtia"}
    return isinstance(device, int) and not isinstance(device, bool)


def _move(target: Target, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
    """``x.to(...)``, ``module.to(...)``: an accelerator among the arguments is the target."""
    if len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
        args = (args[0], target.device, *args[2:])
    return func(
        *(target.device if isinstance(a, str | torch.device) and is_accelerator(a) else a for a in args), **kwargs
    )


def _retype(
    target: Target, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """``x.type(...)``: a tensor type of an accelerator is that of the CPU, also where the name is asked for."""
    answer = func(*(a.replace("torch.cuda.", "torch.") if isinstance(a, str) else a for a in args), **kwargs)
    return TensorTypeName(answer) if isinstance(answer, str) else answer


def _lengths(target: Target, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
    """``all_to_all_single(...)``: a script that moves the lengths to the CPU only if they are elsewhere has tensors."""
    named = {name: _as_list(value) if name.endswith("_split_sizes") else value for name, value in kwargs.items()}
    return func(*args[:2], *map(_as_list, args[2:4]), *args[4:], **named)


def _as_list(lengths: object) -> object:
    return lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths


def _gather(target: Target, func: TorchFunction, args: Any, kwargs: Any) -> object:
    """``all_gather(...)``: pieces of several sizes, which NCCL takes and the groups here do not, are broadcast."""
    pieces, own, group, asynchronous = _of_all_gather(*args, **kwargs)
    if not all(isinstance(piece, torch.Tensor) and piece.numel() == own.numel() for piece in pieces):
        pieces[dist.get_rank(group)].copy_(own)
        works = [dist.broadcast(piece, group=group, group_src=at, async_op=True) for at, piece in enumerate(pieces)]
        if asynchronous:
            return _Works(works)
        for work in works:
            work.wait()
        return None
    return func(*args, **kwargs)


def _reduce(target: Target, func: TorchFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """A reduction that NCCL scales before it sums: scaled here, for the groups here cannot."""
    given = inspect.signature(inspect.unwrap(func)).bind(*args, **kwargs)
    op = given.arguments.get("op")
    if op is None or op != dist.ReduceOp.PREMUL_SUM or dist.get_backend(given.arguments.get("group")) == "fake":
        return func(*args, **kwargs)
    name = next(name for name in ("input_list", "input", "tensor") if name in given.arguments)
    scaled = given.arguments[name]
    if name == "tensor":
        scaled.mul_(op.factor)
    else:
        scaled = [x * op.factor for x in scaled] if name == "input_list" else scaled * op.factor
    given.arguments.update({name: scaled, "op": dist.ReduceOp.SUM})
    return func(*given.args, **given.kwargs)


def _of_all_gather(
    tensor_list: Sequence[torch.Tensor],
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> tuple[Sequence[torch.Tensor], torch.Tensor, dist.ProcessGroup | None, bool]:
    return tensor_list, tensor, group, async_op


class _Works:
    """Several works that are waited for as one."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        self.works = works

    def wait(self, timeout: object = None) -> None:
        """Wait for all of them."""
        for work in self.works:
            work.wait()

    def is_completed(self) -> bool:
        """True if all are done."""
        return all(work.is_completed() for work in self.works)


def _parse(target: Target, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
    """What ``module.to(...)`` makes of its arguments."""
    first, *rest = args or (None,)
    return func(*((target.device, *rest) if is_accelerator(first) else args), **kwargs)


def _to_accelerator(target: Target, func: object, args: Sequence[torch.Tensor], kwargs: object) -> object:
    """``x.cuda()``."""
    return args[0].to(target.device)


def _stay(target: Target, func: object, args: Sequence[object], kwargs: object) -> object:
    """``x.pin_memory()``: nothing to do."""
    return args[0]


def _number(target: Target, func: TorchFunction, args: Sequence[torch.Tensor], kwargs: Keywords) -> object:
    """``x.item()`` and its relatives: a tensor without values reads as one."""
    x = args[0]
    if not (x.is_meta or is_fake(x)):
        return func(*args, **kwargs)
    made = _stand_in(func, x, args)
    running = session.current()
    if running is not None:
        running.trust(f"the value of a tensor without storage was read as {made!r}", user_site())
    return made


def _stand_in(func: Any, x: torch.Tensor, args: Any) -> object:
    if func is torch.Tensor.__bool__:
        return True
    one: Any = True if x.dtype is torch.bool else 1.0 if x.is_floating_point() else 1 + 0j if x.is_complex() else 1
    if func is torch.Tensor.tolist:
        for size in reversed(x.shape):
            one = [one] * size
        return one
    if func is torch.Tensor.numpy:
        return torch.ones(x.shape, dtype=x.dtype, device="cpu").numpy()
    if func is torch.Tensor.__format__:
        return format(one, args[1]) if x.ndim == 0 else repr(x)
    converted = {torch.Tensor.__int__: int, torch.Tensor.__index__: int, torch.Tensor.__float__: float}.get(func)
    return one if converted is None else converted(one)


def _cleared(target: Target, func: TorchFunction, args: Sequence[object], kwargs: Keywords) -> object:
    """Zeros where nobody writes the memory that the program has left open: no NaN that is there by chance."""
    made: Any = func(*args, **kwargs)
    if target.imagined and target.has_values and made.__class__ is torch.Tensor and made.device.type == "cpu":
        with no_torch_function(), torch.no_grad():
            if made.layout is torch.strided and made.nbytes <= CLEARED_BYTES:
                made.zero_()
    return made


def _instead(
    stand_in: Callable[..., object], target: Target, func: TorchFunction, args: object, kwargs: object
) -> object:
    return stand_in(func, args, kwargs)


SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.Tensor.to: _move,
    torch.Tensor.type: _retype,
    torch.Tensor.cuda: _to_accelerator,
    torch.Tensor.pin_memory: _stay,
    **{func: functools.partial(_instead, stand_in) for func, stand_in in GPU_KERNELS.items()},
    parse_to: _parse,
    dist.all_gather: _gather,
    **dict.fromkeys(
        [getattr(dist, name) for name in REDUCTIONS if hasattr(dist, name)],
        _reduce,
    ),
    dist.all_to_all_single: _lengths,
    **dict.fromkeys((torch.empty, torch.empty_like, torch.Tensor.new_empty, torch.empty_strided), _cleared),
    **dict.fromkeys(
        (
            torch.Tensor.item,
            torch.Tensor.tolist,
            torch.Tensor.numpy,
            torch.Tensor.__bool__,
            torch.Tensor.__int__,
            torch.Tensor.__index__,
            torch.Tensor.__float__,
            torch.Tensor.__complex__,
            torch.Tensor.__format__,
        ),
        _number,
    ),
}
