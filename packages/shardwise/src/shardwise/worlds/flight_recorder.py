"""Which collective is this process in? Read from torch's flight recorder, which records every one that gloo runs.

The recorder costs the program nothing that it does not pay already, and sees what C++ issues too: functional
collectives, DDP's buckets. It does not record messages: ``send`` and ``recv`` note themselves.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.source import Site, is_internal
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.host.attribute_patch import patched
from shardwise.interop.torch_compat import flight_records, ranks_by_group_name
from shardwise.types.notation import abbreviate

from .waiting import Entered, Standing

Message = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A ``send`` or ``recv``: its text, the ranks of its group, its partner."""
_messages: dict[int, Message] = {}
"""By thread, the message that it is in."""


_NARROW = {"Half": torch.float16, "BFloat16": torch.bfloat16}
"""Narrow floating-point dtypes as torch's flight recorder calls them."""


@dataclass(frozen=True)
class Whereabouts:
    """What one rank knows about itself.

    ``reached``  by group, how many of its collectives this rank has entered.
    ``inside``   the group and the number of the collective that it has not left, and its name.
    ``message``  the ``send`` or ``recv`` that it is in.
    """

    location: SourceLocation | None = None
    reached: Mapping[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    inside: tuple[tuple[str, tuple[int, ...]], int, str] | None = None
    message: Message | None = None


def whereabouts(thread: int) -> Whereabouts:
    """Where this process is, whose program runs on ``thread`` (its identifier)."""
    frame = sys._current_frames().get(thread)
    groups = ranks_by_group_name()
    reached: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
    inside = None
    for record in flight_records():
        name, number = record["process_group"][0], record["collective_seq_id"]
        if record["is_p2p"] or name not in groups:
            continue
        group = (name, groups[name])
        reached[group] = max(reached[group], number)
        if inside is None and not record["retired"]:
            inside = (group, number, _call(record))
    return Whereabouts(location_of(frame), dict(reached), inside, None if inside else _messages.get(thread))


def communicated_dtypes() -> set[torch.dtype]:
    """The narrow dtypes of the last collectives of this process, also of those that a hook of DDP has narrowed."""
    return {_NARROW[name] for record in flight_records() for name in record["input_dtypes"] if name in _NARROW}


def narrow_reductions() -> list[str]:
    """The last collectives of this process that sum in a narrow dtype: ``all_reduce in bfloat16``."""
    found = {
        f"{record['profiling_name'].rpartition(':')[2]} in {str(_NARROW[name]).removeprefix('torch.')}"
        for record in flight_records()
        for name in record["input_dtypes"]
        if name in _NARROW and "reduce" in record["profiling_name"]
    }
    return sorted(found)


def standings(known: Mapping[int, Whereabouts], instead: Mapping[int, str]) -> tuple[Standing, ...]:
    """Where every rank stands, from what each said about itself, or what is said of it ``instead``."""
    told = [Standing(rank, instead=words) for rank, words in instead.items()]
    for rank, own in known.items():
        entered = None
        if own.inside is not None:
            group, number, call = own.inside
            missing = tuple(other for other in group[1] if other != rank and not _came(known.get(other), group, number))
            entered = Entered(call, group[1], number, missing)
        elif own.message is not None:
            call, ranks, missing = own.message
            entered = Entered(call, ranks, None, missing)
        told.append(Standing(rank, entered, own.location))
    return tuple(sorted(told, key=lambda one: one.rank))


def _came(other: Whereabouts | None, group: tuple[str, tuple[int, ...]], number: int) -> bool:
    return other is not None and other.reached.get(group, 0) >= number


def _call(record: Mapping[str, Any]) -> str:
    tensors = zip(record["input_dtypes"], record["input_sizes"], strict=False)
    shown = ", ".join(f"{_dtype(dtype)}[{', '.join(map(str, sizes))}]" for dtype, sizes in tensors)
    return f"{record['profiling_name'].rpartition(':')[2]}({shown})"


def _dtype(name: str) -> str:
    """``f32`` for ``Float``: the recorder writes C++ names."""
    written = {"Float": "float32", "Double": "float64", "Half": "float16", "Int": "int32", "Long": "int64"}
    written |= {"Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "BFloat16": "bfloat16"}
    return abbreviate(written.get(name, name))


def location_of(frame: FrameType | None) -> SourceLocation | None:
    """The innermost call of the user's own program that a stack is in."""
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    return None if frame is None else Site(frame.f_code, frame.f_lasti).location()


@contextlib.contextmanager
def messages_noted() -> Iterator[None]:
    """Inside the block it is known in which ``send`` or ``recv`` each thread is."""
    with contextlib.ExitStack() as stack:
        for name in ("send", "recv"):
            noting = _noting(name, getattr(dist, name))
            for module in (dist, dist.distributed_c10d):
                stack.enter_context(patched(module, name, noting))
        yield


def _noting(name: str, plain: Callable[..., object]) -> Callable[..., object]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def message(*args: object, **options: object) -> object:
        thread = threading.get_ident()
        _messages[thread] = _message(name, signature.bind(*args, **options).arguments)
        try:
            return plain(*args, **options)
        finally:
            _messages.pop(thread, None)

    return message


def _message(name: str, given: Mapping[str, Any]) -> Message:
    group = given.get("group") or dist.group.WORLD
    ranks = tuple(dist.get_process_group_ranks(group))
    end = "dst" if name == "send" else "src"
    partner, in_group = given.get(end), given.get(f"group_{end}")
    if partner is None and in_group is not None:
        partner = ranks[in_group]
    direction = "to" if name == "send" else "from"
    other = "any rank" if partner is None else f"rank {partner}"
    return f"{name} {direction} {other}", ranks, () if partner is None else (partner,)
