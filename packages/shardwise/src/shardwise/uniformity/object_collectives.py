"""How are collectives on Python objects compared? As one call each, with the objects handed over for real.

``torch.distributed`` makes several tensor collectives of each, whose sizes come from the others; in a fake world
nothing would come. So they are taken one level higher, and programs that share their configuration get it.
"""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch.distributed as dist

from shardwise.diagnostics.source import user_location
from shardwise.host.attribute_patch import patched
from shardwise.interop.tensors.parcels import packed

from .calls import TracedCall, TracedGroup


class CallRecorder(Protocol):
    """What the calls are told to: ``collective_trace.CollectiveRecorder``."""

    rank: int
    paused: bool

    def group(self, process_group: object) -> TracedGroup:
        """The group as traces know it."""

    def issue(self, call: TracedCall, parcel: bytes | None, fetches: bool = True) -> Mapping[int, bytes] | None:
        """Tell of ``call``; the parcels of the ranks that have met in it."""


Given = dict[str, Any]
Received = Mapping[int, Any]
"""What each rank of the world that was run has handed in."""


@contextlib.contextmanager
def recording_objects(recorder: CallRecorder) -> Iterator[None]:
    """The object collectives are told to ``recorder`` inside the block."""
    with contextlib.ExitStack() as stack:
        for name, (offer, take) in _COLLECTIVES.items():
            replacement = _recorded(recorder, name, getattr(dist, name), offer, take)
            for module in (dist, dist.distributed_c10d):
                stack.enter_context(patched(module, name, replacement))
        yield


Offer = Callable[[Given], Any]
Take = Callable[[Given, Received, TracedCall, int], Any]


def _recorded(recorder: CallRecorder, name: str, original: Callable[..., object], offer: Offer, take: Take) -> object:
    signature = inspect.signature(original)

    def collective(*args: object, **options: object) -> object:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        given = bound.arguments
        process_group = given.get("group") or dist.group.WORLD
        if process_group is dist.GroupMember.NON_GROUP_MEMBER:
            return original(*args, **options)
        group = recorder.group(process_group)
        call = _call(name, given, group)
        gives = call.root in (None, recorder.rank) or name == "gather_object"
        handed = packed(offer(given)) if gives and call.kind != "recv" else None
        parcels = recorder.issue(call, handed, fetches=call.kind != "send")
        if parcels:
            return take(given, {rank: pickle.loads(one) for rank, one in parcels.items() if one}, call, recorder.rank)
        recorder.paused = True
        try:
            return original(*args, **options)
        finally:
            recorder.paused = False

    return collective


def _call(name: str, given: Given, group: TracedGroup) -> TracedCall:
    message = {"send_object_list": "send", "recv_object_list": "recv"}.get(name)
    other = _other(given, group, 0 if message is None else None)
    if message is not None:
        return TracedCall(message, group, user_location(2), typed="objects", peer=other)
    root = other if "src" in given or "dst" in given else None
    return TracedCall(name, group, user_location(2), root=root)


def _other(given: Given, group: TracedGroup, default: int | None) -> int | None:
    """The root or the peer, as a rank of the world."""
    for word in ("src", "dst"):
        if given.get(f"group_{word}") is not None:
            return group.ranks[given[f"group_{word}"]]
        if given.get(word) is not None:
            return int(given[word])
    return default


def _take_broadcast(given: Given, received: Received, call: TracedCall, rank: int) -> None:
    if call.root is not None and call.root in received:
        given["object_list"][:] = received[call.root]


def _take_scatter(given: Given, received: Received, call: TracedCall, rank: int) -> None:
    if call.root is not None and call.root in received:
        given["scatter_object_output_list"][0] = received[call.root][call.group.ranks.index(rank)]


def _take_all_gather(given: Given, received: Received, call: TracedCall, rank: int) -> None:
    for position, member in enumerate(call.group.ranks):
        given["object_list"][position] = received.get(member, given["obj"])


def _take_gather(given: Given, received: Received, call: TracedCall, rank: int) -> None:
    if rank == call.root:
        for position, member in enumerate(call.group.ranks):
            given["object_gather_list"][position] = received.get(member, given["obj"])


def _take_message(given: Given, received: Received, call: TracedCall, rank: int) -> int | None:
    for sender, objects in received.items():
        given["object_list"][:] = objects
        return sender
    return None


_COLLECTIVES: dict[str, tuple[Offer, Take]] = {
    "broadcast_object_list": (lambda given: given["object_list"], _take_broadcast),
    "scatter_object_list": (lambda given: given["scatter_object_input_list"], _take_scatter),
    "all_gather_object": (lambda given: given["obj"], _take_all_gather),
    "gather_object": (lambda given: given["obj"], _take_gather),
    "send_object_list": (lambda given: given["object_list"], _take_message),
    "recv_object_list": (lambda given: None, _take_message),
}
