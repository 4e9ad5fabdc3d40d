"""What does ``torch.cuda`` answer in a world without GPUs? Stand-ins that do nothing, so that scripts get past them.

``torch.cuda.is_available()`` says False, so that a script which can do without takes its CPU branch. Covered is every
function of ``torch.cuda`` and of its modules ``random``, ``memory``, ``streams``, ``graphs``, ``nvtx`` and ``profiler``
that a training script calls; not covered are ``comm``, ``gds``, ``jiterator``, ``tunable`` and the allocator's own.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.running import session

from .accelerator_seeds import AcceleratorSeeds
from .device_properties import MEMORY_BYTES, PROPERTIES

DOES_NOTHING = """
    caching_allocator_enable check_error empty_cache graph_pool_handle init ipc_collect
    reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats
    set_per_process_memory_fraction set_stream set_sync_debug_mode synchronize
    _dump_snapshot _lazy_init _record_memory_history
"""
COUNTS_NOTHING = """
    clock_rate device_memory_used get_sync_debug_mode max_memory_allocated max_memory_cached max_memory_reserved
    memory_allocated memory_cached memory_reserved memory_usage power_draw temperature utilization
"""
TENSOR_KINDS = "BFloat16 Bool Byte Char Double Float Half Int Long Short"
MODULES = ("random", "memory", "streams", "graphs")
"""Modules of ``torch.cuda`` that have some of its names too."""
DTYPES = frozenset(kind for kind in vars(torch).values() if isinstance(kind, torch.dtype))
MARKS = {"nvtx": ("mark", "range_push", "range_pop", "range_start", "range_end"), "profiler": ("start", "stop")}

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

    def wait(self, stream: object = None) -> None: ...

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
def _nothing_special(*args: object, **options: object) -> Iterator[None]:
    """A context manager that does nothing: ``stream(s)``, ``use_mem_pool(p)``, ``nvtx.range(text)``."""
    yield


class CUDAGraph:
    """A graph that was run as it was captured. A replay computes nothing: its results are those of the capture."""

    def __init__(self, *args: object, **options: object) -> None: ...

    def capture_begin(self, *args: object, **options: object) -> None: ...

    def capture_end(self) -> None: ...

    def reset(self) -> None: ...

    def pool(self) -> None: ...

    def replay(self) -> None:
        running = session.current()
        if running is not None:
            running.trust("a CUDA graph was replayed, and its results are those of its capture", user_site())


class MemPool:
    """A pool of memory that nothing is taken from."""

    def __init__(self, *args: object, **options: object) -> None:
        self.id = (0, 0)


class TensorTypeName(str):
    """``x.type()``: the name of a tensor type of the CPU, which equals that of the same type on a GPU too."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and _without_device(self) == _without_device(other)

    def __hash__(self) -> int:
        return hash(_without_device(self))


def _without_device(name: str) -> str:
    return str.__str__(name).replace("torch.cuda.", "torch.")


def _graphed(functions: object, *args: object, **options: object) -> object:
    """``make_graphed_callables``: the functions themselves."""
    return functions


def cuda_stand_ins(local_rank: int, seeds: AcceleratorSeeds) -> dict[str, object]:
    """What each name of ``torch.cuda`` is replaced with, for the rank that is number ``local_rank`` on its host."""
    local_size = seeds.local_size
    return {
        **seeds.stand_ins(),
        **{name: _answering(None) for name in DOES_NOTHING.split()},
        **{name: _answering(0) for name in COUNTS_NOTHING.split()},
        **{f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in TENSOR_KINDS.split()},
        "CUDAGraph": CUDAGraph,
        "Event": Event,
        "ExternalStream": Stream,
        "MemPool": MemPool,
        "Stream": Stream,
        "can_device_access_peer": lambda device, peer: True,
        "cudart": lambda: _Runtime(),
        "current_device": lambda: local_rank,
        "current_stream": _streaming(),
        "default_generators": (torch.default_generator,) * local_size,
        "default_stream": _streaming(),
        "device": device,
        "device_count": lambda: local_size,
        "device_of": device,
        "get_allocator_backend": lambda: "native",
        "get_arch_list": list,
        "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
        "get_device_name": lambda device=None: PROPERTIES.name,
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_gencode_flags": str,
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "get_stream_from_external": _streaming(),
        "graph": _nothing_special,
        "host_memory_stats": dict,
        "host_memory_stats_as_nested_dict": dict,
        "is_available": lambda: False,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "is_tf32_supported": lambda: True,
        "list_gpu_processes": lambda device=None: "",
        "make_graphed_callables": _graphed,
        "mem_get_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
        "memory_stats": lambda device=None: {},
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_snapshot": lambda mempool_id=None: [],
        "memory_summary": lambda device=None, abbreviated=False: "",
        "stream": _nothing_special,
        "use_mem_pool": _nothing_special,
    }


def cuda_module_stand_ins(local_rank: int, seeds: AcceleratorSeeds) -> Iterator[tuple[types.ModuleType, str, object]]:
    """The same for the modules in ``torch.cuda``: each module, a name in it and what it is replaced with."""
    known = cuda_stand_ins(local_rank, seeds)
    for module in (getattr(torch.cuda, name) for name in MODULES):
        for name in known.keys() & vars(module).keys():
            yield module, name, known[name]
    for name, marks in MARKS.items():
        for mark in marks:
            yield getattr(torch.cuda, name), mark, _answering(0)
    yield torch.cuda.nvtx, "range", _nothing_special
    yield torch.cuda.profiler, "profile", _nothing_special
    yield torch.cuda.nccl, "version", lambda: (2, 0, 0)


class _Runtime:
    """The CUDA runtime: whatever is called of it succeeds."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _answering(0)


def accelerator_stand_ins(local_rank: int, seeds: AcceleratorSeeds) -> dict[str, object]:
    """The same for ``torch.accelerator``."""
    local_size = seeds.local_size
    return {
        **{
            name: _answering(None)
            for name in (
                "current_accelerator",
                "empty_cache",
                "empty_host_cache",
                "reset_accumulated_memory_stats",
                "reset_peak_memory_stats",
                "set_stream",
                "synchronize",
            )
        },
        **{
            name: _answering(0)
            for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
        },
        "set_device_idx": lambda device: seeds.take(),
        "set_device_index": lambda device: seeds.take(),
        "Graph": CUDAGraph,
        "current_device_idx": lambda: local_rank,
        "current_device_index": lambda: local_rank,
        "current_stream": _streaming(),
        "device_count": lambda: local_size,
        "device_index": device,
        "get_device_capability": lambda device=None: {"supported_dtypes": set(DTYPES)},
        "get_memory_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
        "is_available": lambda: False,
        "memory_stats": lambda device=None: {},
    }


def _answering(value: object) -> Callable[..., object]:
    """A new function each time: Dynamo refuses one object under two names of torch."""
    return lambda *args, **options: value


def _streaming() -> Callable[..., Stream]:
    """The same for what gives a stream."""
    return lambda *args, **options: Stream()
