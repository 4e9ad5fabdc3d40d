"""What torch has for its own tests: the fake backend and the database of operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.distributed

from .registry import private


@private(
    "torch.testing._internal.distributed.fake_pg.FakeStore",
    lost="checking one rank of a job on one machine",
)
@contextlib.contextmanager
def fake_world(rank: int, world_size: int) -> Iterator[None]:
    """A default process group whose collectives return at once without moving a byte."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


@private(
    "torch.testing._internal.common_methods_invocations.op_db",
    lost="the sweep over PyTorch's operators",
    tier=2,
)
def op_database() -> list[Any]:
    """PyTorch's own list of operators with sample inputs; needs the package ``expecttest``."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)
