"""Messages between the ranks of an axis, as stages of a pipeline send them: sending never waits, receiving does."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from shardwise.types.notation import TypedShape

from .program import typed

ACTIVATION, GRADIENT = 0, 1
"""Tags: between the same two ranks each kind has an order of its own. NCCL has no tags, and needs a group for each."""


class Messages:
    """Those of this rank along ``axis``. Every message is a tensor of the type ``between``."""

    def __init__(self, mesh: DeviceMesh, axis: str, between: TypedShape) -> None:
        self.group, self.between = mesh.get_group(axis), between
        self.rank, self.ranks = mesh.get_local_rank(axis), mesh[axis].size()
        self._sending: defaultdict[tuple[int, int], deque[tuple[Any, Tensor]]] = defaultdict(deque)
        self._to_itself: defaultdict[int, deque[Tensor]] = defaultdict(deque)

    def send(self, x: Tensor, rank: int, tag: int) -> None:
        """Does not wait: the other rank may be sending to this one. Ranks are counted round: -1 is the last one."""
        to = rank % self.ranks
        if to == self.rank:
            self._to_itself[tag].append(x)
        else:
            self._sending[to, tag].append((dist.isend(x, group=self.group, group_dst=to, tag=tag), x))

    def receive(self, like: Tensor, rank: int, tag: int) -> Tensor:
        """The next message of this tag from ``rank``, of the shape and dtype of ``like``."""
        source = rank % self.ranks
        if source == self.rank:
            return self._to_itself[tag].popleft()
        x = torch.empty(like.shape, dtype=like.dtype)
        dist.recv(x, group=self.group, group_src=source, tag=tag)
        if tag == GRADIENT:  # whoever sends one has taken an activation for it: it need not be kept any longer
            work, _ = self._sending[source, ACTIVATION].popleft()
            work.wait()
        return typed(x, self.between)

    def finish(self) -> None:
        """Wait until everything has been taken."""
        for sent in self._sending.values():
            for work, _ in sent:
                work.wait()
        self._sending.clear()
