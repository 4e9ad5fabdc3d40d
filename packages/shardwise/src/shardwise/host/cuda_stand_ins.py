"""What does ``torch.cuda`` answer in a world without GPUs? Stand-ins that do nothing, so that scripts get past them.

``torch.cuda.is_available()`` says False, so that a script which can do without takes its CPU branch.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

DOES_NOTHING = """
    empty_cache init ipc_collect manual_seed manual_seed_all reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_peak_memory_stats seed seed_all set_device set_per_process_memory_fraction
    set_rng_state set_rng_state_all set_stream set_sync_debug_mode synchronize
"""
COUNTS_NOTHING = """
    device_memory_used max_memory_allocated max_memory_cached max_memory_reserved memory_allocated memory_cached
    memory_reserved memory_usage utilization
"""
MEMORY_BYTES = 80 << 30


_RealGenerator = torch.Generator


class _AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealGenerator)


class Generator(torch.Generator, metaclass=_AnyGenerator):
    """A generator on the CPU, whatever device is asked for; every generator is one of these."""

    def __new__(cls, device: object = None) -> Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


class Stream:
    """A stream on which everything has happened already."""

    def __init__(self, *args: object, **options: object) -> None:
        self.device = torch.device("cpu")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def record_event(self, event: object = None) -> object:
        return event or Event()

    def query(self) -> bool:
        return True


class Event:
    """An event that has happened, no time after any other."""

    def __init__(self, *args: object, **options: object) -> None: ...

    def record(self, stream: object = None) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: object) -> float:
        return 0.0


class device(contextlib.nullcontext[None]):
    """``with torch.cuda.device(0)``."""

    def __init__(self, index: object = None) -> None:
        super().__init__()
        self.idx = index


@contextlib.contextmanager
def stream(current: object = None) -> Iterator[None]:
    yield


def cuda_stand_ins(local_rank: int, local_size: int) -> dict[str, object]:
    """What each name of ``torch.cuda`` is replaced with, for the rank that is number ``local_rank`` on its host."""
    properties = types.SimpleNamespace(
        name="imagined", major=0, minor=0, total_memory=MEMORY_BYTES, multi_processor_count=1
    )
    return {
        **{name: _answering(None) for name in DOES_NOTHING.split()},
        **{name: _answering(0) for name in COUNTS_NOTHING.split()},
        "Event": Event,
        "Stream": Stream,
        "current_device": lambda: local_rank,
        "current_stream": Stream,
        "default_stream": Stream,
        "device": device,
        "device_count": lambda: local_size,
        "get_device_capability": lambda device=None: (0, 0),
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "is_available": lambda: False,
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
        "memory_stats": lambda device=None: {},
        "memory_summary": lambda device=None, abbreviated=False: "",
        "stream": stream,
    }


def accelerator_stand_ins(local_rank: int, local_size: int) -> dict[str, object]:
    """The same for ``torch.accelerator``."""
    return {
        **{
            name: _answering(None) for name in ("current_accelerator", "set_device_index", "synchronize", "empty_cache")
        },
        "current_device_index": lambda: local_rank,
        "device_count": lambda: local_size,
        "is_available": lambda: False,
    }


def _answering(value: object) -> Callable[..., object]:
    """A new function each time: Dynamo refuses one object under two names of torch."""
    return lambda *args, **options: value
