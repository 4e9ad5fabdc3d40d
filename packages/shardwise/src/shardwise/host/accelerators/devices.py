"""How does a script written for GPUs run without one? Devices are redirected, and ``torch.cuda`` answers for nothing.

A function mode sees every torch call: an accelerator in its arguments becomes the target device, factories make fake
or meta tensors when asked to, and a number that such a tensor does not have is made up and noted as trusted.
The mode goes below the checker's, which therefore judges each call before it is changed here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from shardwise.interop.tensors.tagging import set_tag, tag_of
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import (
    FLEX_DEVICE,
    MODULE_OF_FACTORIES,
    SYNCED_BATCH_NORM_DEVICE,
    factories,
    fake_tensor_mode,
    forget_fakes,
    parse_to,
)

from ..attribute_patch import patched
from ..backward_modes import on_in_backward
from ..module_loading import when_loaded
from . import synced_batch_norm
from .accelerator_seeds import AcceleratorSeeds
from .cuda_stand_ins import (
    Generator,
    accelerator_stand_ins,
    cuda_module_stand_ins,
    cuda_stand_ins,
)
from .redirected_calls import SPECIAL, Target, is_accelerator

FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
NEEDS_VALUES = {"torch.distributed.device_mesh", "torch.distributed.distributed_c10d"}
"""Modules that compute with rank numbers held in tensors."""
MOVES = {torch.Tensor.to, torch.Tensor.cuda, parse_to}
"""What moves a tensor, or the tensors of a module, to the device that it is given, if not under a keyword."""
LOOKED_THROUGH = ("shardwise.", MODULE_OF_FACTORIES, "torch.overrides")


@contextlib.contextmanager
def accelerator_redirected(target: Target, local_rank: int, local_size: int) -> Iterator[None]:
    """Inside the ``with`` block there is one device, ``target``, whatever the script asks for."""
    with contextlib.ExitStack() as stack:
        seeds = AcceleratorSeeds(local_size)
        redirect = Redirect(target, seeds)
        for owner, name, value in _replacements(target, local_rank, seeds):
            stack.enter_context(patched(owner, name, value))
        stack.enter_context(when_loaded(FSDP1, lambda module: _redirect_fsdp1(stack, module, target)))
        stack.enter_context(patched(torch.utils, "swap_tensors", _swap_fakes(redirect, torch.utils.swap_tensors)))
        stack.enter_context(on_in_backward(redirect))
        stack.enter_context(patched(threading.Thread, "start", _redirected_start(redirect, threading.Thread.start)))
        stack.enter_context(redirect)
        yield


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


@contextlib.contextmanager
def nothing_compiled() -> Iterator[None]:
    """Inside the ``with`` block the program runs as it is written, also on accelerators that are there."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in _as_written():
            stack.enter_context(patched(owner, name, value))
        yield


class Redirect(TorchFunctionMode):
    """Runs each torch call on the target device. ``seeds`` hears when a call uses an accelerator."""

    def __init__(self, target: Target, seeds: AcceleratorSeeds) -> None:
        super().__init__()
        self.target, self.seeds = target, seeds
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
        if special is not None and func in MOVES and (func is torch.Tensor.cuda or any(map(is_accelerator, args))):
            self.seeds.take()
        return func(*args, **kwargs) if special is None else special(self.target, func, args, kwargs)

    def _keywords(self, kwargs: dict[str, object]) -> dict[str, object]:
        if is_accelerator(kwargs.get("device")):
            self.seeds.take()
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


def _replacements(target: Target, local_rank: int, seeds: AcceleratorSeeds) -> Iterator[tuple[object, str, object]]:
    """Owner, name and stand-in of everything that a function mode does not see."""
    for name, value in cuda_stand_ins(local_rank, seeds).items():
        yield torch.cuda, name, value
    yield from cuda_module_stand_ins(local_rank, seeds)
    for name, value in accelerator_stand_ins(local_rank, seeds).items():
        yield torch.accelerator, name, value
    yield torch, "set_default_device", lambda device: None
    # A stand-in for a stream is refused before a function mode is asked.
    yield torch.Tensor, "record_stream", lambda tensor, stream: None
    yield torch, "Generator", Generator
    yield torch, "load", _loading(torch.load, target)
    yield FLEX_DEVICE.owner(), FLEX_DEVICE.attribute, lambda query, key, value: None
    yield from _as_written()
    yield torch.amp.GradScaler, "__init__", _scaling_on(torch.amp.GradScaler.__init__, target)
    for owner in (torch.autocast, DeviceMesh):
        yield owner, "__init__", _without_accelerator(owner.__init__, 1, Target(), keyword="device_type")
    parallel = torch.nn.parallel.DistributedDataParallel
    yield SYNCED_BATCH_NORM_DEVICE.owner(), SYNCED_BATCH_NORM_DEVICE.attribute, lambda wrapper, module: None
    yield torch.nn.SyncBatchNorm, "forward", synced_batch_norm.forward
    yield parallel, "__init__", _without_options(parallel.__init__, device_ids=None, output_device=None)
    yield DataLoader, "__init__", _without_options(
        DataLoader.__init__, num_workers=0, prefetch_factor=None, persistent_workers=False, pin_memory=False,
        timeout=0, multiprocessing_context=None,
    )  # fmt: skip


def _as_written() -> Iterator[tuple[object, str, object]]:
    """Stand-ins for what compiles: what is checked or recorded, and how, is not for Dynamo to see."""
    yield torch, "compile", _no_compilation
    yield torch.nn.Module, "compile", lambda module, *args, **options: None


def _without_accelerator(
    original: Callable[..., object], position: int, target: Target, keyword: str = "device"
) -> object:
    """``original`` with an accelerator at ``position`` or under ``keyword`` replaced by the target device."""

    @functools.wraps(original)
    def redirected(*args: object, **options: object) -> object:
        if is_accelerator(options.get(keyword)):
            options[keyword] = target.device
        if len(args) > position and is_accelerator(args[position]):
            args = (*args[:position], target.device, *args[position + 1 :])
        return original(*args, **options)

    return redirected


def _scaling_on(original: Callable[..., None], target: Target) -> Callable[..., None]:
    """``GradScaler.__init__`` for the target: a scaler for GPUs, which is the default, does nothing without one."""

    @functools.wraps(original)
    def init(self: object, device: object = "cuda", *args: object, **options: object) -> None:
        original(self, target.device if is_accelerator(device) else device, *args, **options)

    return init


def _redirect_fsdp1(stack: contextlib.ExitStack, module: ModuleType, target: Target) -> None:
    wrapper = module.FullyShardedDataParallel
    stack.enter_context(patched(wrapper, "__init__", _on_device(wrapper.__init__, target)))


def _on_device(original: Callable[..., object], target: Target) -> Callable[..., object]:
    """``original``, an ``__init__``, whose ``device_id`` is the target, whatever is there."""

    @functools.wraps(original)
    def init(self: object, *args: object, **options: object) -> None:
        original(self, *args, **{**options, "device_id": torch.device(target.device)})

    return init


def _loading(original: Callable[..., object], target: Target) -> Callable[..., object]:
    """``torch.load`` to the target device, also of what was saved on another one."""

    @functools.wraps(original)
    def load(file: object, map_location: object = None, *rest: object, **options: object) -> object:
        here = map_location is None or is_accelerator(map_location)
        return original(file, target.device if here else map_location, *rest, **options)

    return load


def _without_options(original: Callable[..., object], **fixed: object) -> object:
    """``original``, an ``__init__``, with these options set wherever the caller sets them.

    It has the signature of the original: Lightning makes a loader anew of the options that it finds there.
    """

    @functools.wraps(original)
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
