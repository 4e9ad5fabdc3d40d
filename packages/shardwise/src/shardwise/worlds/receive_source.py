"""From whom does a receive without a source receive, in a world where nothing is sent? From the first of the others.

PyTorch asks the handle of such a receive, and those of the fake backend have no answer. Where ranks are compared, it is
known with whom the message was matched, and that is the answer.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from shardwise.host.attribute_patch import patched
from shardwise.interop.torch_compat import SOURCE_RANK, fake_work

_receiving = threading.local()
_senders: dict[int, tuple[Any, int]] = {}
"""The handles of receives whose sender is known, and the sender, by position in the group."""


def sent_by(work: object, source: int) -> None:
    """What the receive with this handle got comes from ``source``, by position in the group."""
    _senders[id(work)] = work, source


@contextlib.contextmanager
def sources_assumed() -> Iterator[None]:
    """Inside the block ``torch.distributed.recv`` without a source gives the first other rank of its group."""
    with contextlib.ExitStack() as stack:
        received = _with_group(dist.recv)
        for module in (dist, dist.distributed_c10d):
            stack.enter_context(patched(module, "recv", received))
        stack.enter_context(patched(fake_work(), SOURCE_RANK.attribute, _source))
        stack.callback(_senders.clear)
        yield


def _with_group(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def recv(tensor: object, src: object = None, group: object = None, tag: int = 0, group_src: object = None) -> int:
        _receiving.group = group
        return original(tensor, src=src, group=group, tag=tag, group_src=group_src)

    return recv


def _source(work: object) -> int:
    """The sender's position in the group that is being received in; in the world, if the program asks a handle."""
    known = _senders.pop(id(work), None)
    if known is not None:
        return known[1]
    me = dist.get_rank(getattr(_receiving, "group", None))
    return 0 if me else 1
