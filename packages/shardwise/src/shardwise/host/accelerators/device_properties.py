"""What a GPU that is not there says of itself: all that torch tells of one, on CUDA and on ROCm."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

MEMORY_BYTES = 80 << 30


@dataclass(frozen=True)
class DeviceProperties:
    """What ``torch.cuda.get_device_properties`` gives.

    Of compute capability 0.0 and of no known architecture, so that a program that picks a kernel by them takes the one
    for any device. Sizes and rates are those of common cards: what is divided by them has a quotient.
    """

    name: str = "imagined"
    major: int = 0
    minor: int = 0
    gcnArchName: str = ""
    total_memory: int = MEMORY_BYTES
    multi_processor_count: int = 1
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    warp_size: int = 32
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 48 << 10
    shared_memory_per_multiprocessor: int = 64 << 10
    L2_cache_size: int = 4 << 20
    clock_rate: int = 1_000_000
    memory_clock_rate: int = 1_000_000
    memory_bus_width: int = 1024
    uuid: UUID = field(default_factory=lambda: UUID(int=0))
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0


PROPERTIES = DeviceProperties()
