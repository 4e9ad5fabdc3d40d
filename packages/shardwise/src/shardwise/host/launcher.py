"""Which rank of whose job is this process? What a launcher has said in the environment: torchrun, or one like it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shardwise.diagnostics.errors import SpmdValueError

OWN_RUN = "shardwise"
"""The run id of jobs that this package imagines or starts itself."""
RUN_ID = "TORCHELASTIC_RUN_ID"
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "TORCH_NCCL_ASYNC")


@dataclass(frozen=True)
class LaunchedRank:
    """One rank of a job that a launcher has started, a process per rank.

    ``local_rank``  its number on its node; ``node`` the node's, as far as the launcher says.
    """

    rank: int
    size: int
    local_rank: int = 0
    node: int = 0


def is_launched() -> bool:
    """A launcher has started this process, as far as its variables say."""
    return all(name in os.environ for name in NEEDED) and os.environ.get(RUN_ID) != OWN_RUN


def launched_rank(*, alone: bool = False) -> LaunchedRank | None:
    """The rank that this process is, in a job of several; None if no launcher has started it.

    ``alone``  in a job of one rank too, if torchrun says so: containers set the other variables for their one process.

    Errors: SW903 for variables of a launcher that are no numbers, or contradict each other.
    """
    said = os.environ
    if not is_launched():
        return None
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < size:
        raise SpmdValueError(
            f"the launcher says RANK={rank} and WORLD_SIZE={size}: ranks go from 0 to {size - 1}", code="SW903"
        )
    if size == 1 and not (alone and RUN_ID in said):
        return None
    local = _number("LOCAL_RANK") if "LOCAL_RANK" in said else 0
    node = _number("GROUP_RANK") if "GROUP_RANK" in said else (0 if "LOCAL_RANK" in said else rank)
    return LaunchedRank(rank, size, local, node)


def without_launcher() -> dict[str, str]:
    """The environment as it would be if no launcher had started this process."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}


def _number(name: str) -> int:
    text = os.environ[name]
    if not text.isascii() or not text.isdigit():
        raise SpmdValueError(
            f"the launcher says {name}={text!r}, expected a number",
            code="SW903",
            help=("torchrun --nproc-per-node 4 -m shardwise verify train.py", "or unset the variable"),
        )
    return int(text)
