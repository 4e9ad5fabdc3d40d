"""How does a script written for GPUs run without one? Devices are redirected, and ``torch.cuda`` answers for nothing.

A function mode sees every torch call: an accelerator in its arguments becomes the target device, factories make fake
or meta tensors when asked to, and a number that such a tensor does not have is made up and noted as trusted.
The mode goes below the checker's, which therefore judges each call before it is changed here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from shardwise.diagnostics.source import user_site
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import set_tag, tag_of
from shardwise.interop.torch_call import Keywords, TorchFunction
from shardwise.interop.torch_compat import (
    FLEX_DEVICE,
    MODULE_OF_FACTORIES,
    RUN_BACKWARD,
    factories,
    fake_tensor_mode,
    forget_fakes,
    is_fake,
    parse_to,
)

from .attribute_patch import patched
from .cuda_stand_ins import (
    Generator,
    TensorTypeName,
    accelerator_stand_ins,
    cuda_module_stand_ins,
    cuda_stand_ins,
)
from .gpu_kernels import GPU_KERNELS

HERE = {"cpu", "meta"}
NEEDS_VALUES = {"torch.distributed.device_mesh", "torch.distributed.distributed_c10d"}
"""Modules that compute with rank numbers held in tensors."""
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor")
"""Those that take an operation; not every torch has all of them."""
LOOKED_THROUGH = ("shardwise.", MODULE_OF_FACTORIES, "torch.overrides")


@dataclass(frozen=True)
class Target:
    """Where tensors live: ``device`` is ``cpu`` or ``meta``; ``fake`` tensors have a device but no storage."""

    device: str = "cpu"
    fake: bool = False

    @property
    def has_values(self) -> bool:
        return self.device != "meta" and not self.fake


@contextlib.contextmanager
def accelerator_redirected(target: Target, local_rank: int, local_size: int) -> Iterator[None]:
    """Inside the ``with`` block there is one device, ``target``, whatever the script asks for."""
    with contextlib.ExitStack() as stack:
        redirect = Redirect(target)
        for owner, name, value in _replacements(target, local_rank, local_size):
            stack.enter_context(patched(owner, name, value))
        stack.enter_context(patched(torch.utils, "swap_tensors", _swap_fakes(redirect, torch.utils.swap_tensors)))
        owner, name = RUN_BACKWARD.owner(), RUN_BACKWARD.attribute
        stack.enter_context(patched(owner, name, _redirected_backward(redirect, vars(owner)[name])))
        stack.enter_context(patched(threading.Thread, "start", _redirected_start(redirect, threading.Thread.start)))
        stack.enter_context(redirect)
        yield


def _redirected_backward(redirect: Redirect, run: Callable[..., object]) -> Callable[..., object]:
    """The backward pass with ``redirect`` on: torch takes it off for the call of ``backward``, and what the backward of
    a Python function makes would be made where it says.
    """

    @functools.wraps(run)
    def run_backward(*args: object, **options: object) -> object:
        with redirect:
            return run(*args, **options)

    return run_backward


def _redirected_start(redirect: Redirect, start: Callable[[threading.Thread], None]) -> Callable[..., None]:
    """Threads that the script starts run with ``redirect`` on: modes are each thread's own."""

    @functools.wraps(start)
    def start_redirected(self: threading.Thread) -> None:
        run = self.run

        def redirected() -> None:
            with redirect:
                run()

        self.run = redirected  # type: ignore[method-assign]
        start(self)

    return start_redirected


def is_accelerator(device: object) -> bool:
    """True for a device, a device string or a device number that is not the CPU or meta."""
    if isinstance(device, torch.device):
        return device.type not in HERE
    if isinstance(device, str):
        return device.partition(":")[0] in {"cuda", "xpu", "hpu", "npu", "mps", "mtia"}
    return isinstance(device, int) and not isinstance(device, bool)


class Redirect(TorchFunctionMode):
    """Runs each torch call on the target device."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.fakes = fake_tensor_mode() if target.fake else None
        self.elsewhere = factories() if not target.has_values else frozenset()

    def __torch_function__(
        self, func: TorchFunction, types: object, args: Sequence[object] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if kwargs:
            kwargs = self._keywords(kwargs)
        if func in self.elsewhere and not _called_for_a_mesh():
            return self._make(func, args, kwargs)
        special = SPECIAL.get(func)
        return func(*args, **kwargs) if special is None else special(self.target, func, args, kwargs)

    def _keywords(self, kwargs: dict[str, object]) -> dict[str, object]:
        if is_accelerator(kwargs.get("device")):
            kwargs = {**kwargs, "device": self.target.device}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return kwargs

    def _make(self, func: TorchFunction, args: Sequence[object], kwargs: dict[str, object]) -> object:
        if self.fakes is not None:
            with self.fakes:
                return func(*args, **kwargs)
        if kwargs.get("device") is None:
            kwargs = {**kwargs, "device": self.target.device}
        return func(*args, **kwargs)


def _called_for_a_mesh() -> bool:
    """True if the torch call that is being redirected was made by a module that needs real numbers."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(LOOKED_THROUGH):
            return name in NEEDS_VALUES
        frame = frame.f_back
    return False


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


def _replacements(target: Target, local_rank: int, local_size: int) -> Iterator[tuple[object, str, object]]:
    """Owner, name and stand-in of everything that a function mode does not see."""
    for name, value in cuda_stand_ins(local_rank, local_size).items():
        yield torch.cuda, name, value
    yield from cuda_module_stand_ins(local_rank, local_size)
    for name, value in accelerator_stand_ins(local_rank, local_size).items():
        yield torch.accelerator, name, value
    yield torch, "set_default_device", lambda device: None
    # A stand-in for a stream is refused before a function mode is asked.
    yield torch.Tensor, "record_stream", lambda tensor, stream: None
    yield torch, "Generator", Generator
    yield torch, "load", _loading(torch.load, target)
    yield FLEX_DEVICE.owner(), FLEX_DEVICE.attribute, lambda query, key, value: None
    yield torch, "compile", _no_compilation
    yield torch.nn.Module, "compile", lambda module, *args, **options: None
    for owner in (torch.autocast, DeviceMesh):
        yield owner, "__init__", _without_accelerator(owner.__init__, 1, Target(), keyword="device_type")
    parallel = torch.nn.parallel.DistributedDataParallel
    yield parallel, "__init__", _without_options(parallel.__init__, device_ids=None, output_device=None)
    yield DataLoader, "__init__", _without_options(
        DataLoader.__init__, num_workers=0, prefetch_factor=None, persistent_workers=False, pin_memory=False,
        timeout=0, multiprocessing_context=None,
    )  # fmt: skip


def _without_accelerator(
    original: Callable[..., object], position: int, target: Target, keyword: str = "device"
) -> object:
    """``original`` with an accelerator at ``position`` or under ``keyword`` replaced by the target device."""

    def redirected(*args: object, **options: object) -> object:
        if is_accelerator(options.get(keyword)):
            options[keyword] = target.device
        if len(args) > position and is_accelerator(args[position]):
            args = (*args[:position], target.device, *args[position + 1 :])
        return original(*args, **options)

    return redirected


def _loading(original: Callable[..., object], target: Target) -> Callable[..., object]:
    """``torch.load`` to the target device, also of what was saved on another one."""

    def load(file: object, map_location: object = None, *rest: object, **options: object) -> object:
        here = map_location is None or is_accelerator(map_location)
        return original(file, target.device if here else map_location, *rest, **options)

    return load


def _without_options(original: Callable[..., object], **fixed: object) -> object:
    """``original``, an ``__init__``, with these options set wherever the caller sets them."""

    def init(self: object, *args: object, **options: object) -> None:
        original(self, *args, **{**options, **{name: value for name, value in fixed.items() if name in options}})

    return init


def _swap_fakes(redirect: Redirect, original: Callable[[object, object], None]) -> Callable[[object, object], None]:
    """``swap_tensors``, which ``module.to`` uses on fake tensors, made to work; the parameter keeps its type."""

    def swap(kept: object, new: object) -> None:
        if redirect.fakes is not None:
            forget_fakes(redirect.fakes)
        tag = tag_of(kept)
        original(kept, new)
        if tag is not None:
            set_tag(new, None)
            set_tag(kept, tag)

    return swap


def _no_compilation(model: object = None, **options: object) -> object:
    """``torch.compile`` that compiles nothing: the program is checked as it is written."""
    return model if model is not None else lambda function: function
