"""What the collectives that ranks issued cost: calls of a trace with bytes, messages and estimated time.

Bytes follow from shapes and are exact for the ring algorithms of ``planner/cost.py``. Time needs to know the network:
where nobody has said, groups inside a host and groups across hosts are told apart, see ``assumed_link``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from shardwise.diagnostics.run_record import AssumedLink, CostedCall
from shardwise.planner.cost import FREE, Cost, Interconnect, cost_of, itemsize

from .calls import Trace, TracedCall

RANKS_PER_HOST = 8
INSIDE_A_HOST = Interconnect(3e-6, 300e9)
"""NVLink of an H100: 450 GB/s one way by its data sheet, of which collectives reach about two thirds."""
BETWEEN_HOSTS = Interconnect(10e-6, 40e9)
"""A port of 400 Gbit/s for each rank: 50 GB/s, of which collectives reach about four fifths."""
_FREE_KINDS = ("new_group", "barrier")


def assumed_link(ranks: Iterable[int]) -> Interconnect:
    """What is taken to connect ``ranks``, with 8 of them on a host in the order of their numbers."""
    hosts = {rank // RANKS_PER_HOST for rank in ranks}
    return INSIDE_A_HOST if len(hosts) < 2 else BETWEEN_HOSTS


def costed(traces: Iterable[Trace]) -> tuple[tuple[CostedCall, ...], tuple[AssumedLink, ...]]:
    """The calls of all ranks, rank by rank in the order of the program; and what their times rest on."""
    calls: list[CostedCall] = []
    links: dict[str, AssumedLink] = {}
    for trace in traces:
        for event in trace.events:
            if isinstance(event, TracedCall) and event.kind != "new_group":
                calls.append(_call(trace.rank, event))
                link = assumed_link(event.group.ranks)
                where = "inside a host" if link is INSIDE_A_HOST else "between hosts"
                said = f"assumed: {RANKS_PER_HOST} ranks a host, this group {where}"
                axis = calls[-1].axis
                links.setdefault(axis, AssumedLink(axis, link.latency_s, link.bytes_per_s, said))
    return tuple(calls), tuple(links.values())


def _call(rank: int, call: TracedCall) -> CostedCall:
    cost = _cost(rank, call)
    return CostedCall(
        kind=call.kind,
        axis=call.group.name or "ranks " + ", ".join(map(str, call.group.ranks)),
        ranks=call.group.ranks,
        rank=rank,
        typed=call.typed,
        op=call.op,
        transition=call.transition,
        messages=cost.messages,
        bytes=cost.bytes,
        seconds=cost.seconds(assumed_link(call.group.ranks)),
        location=call.location,
    )


def _cost(rank: int, call: TracedCall) -> Cost:
    """Of all tensors handed in. One rank gives all in a broadcast; to receive a message is to receive its bytes."""
    total, size = FREE, len(call.group.ranks)
    for shape, dtype in zip(call.shapes, call.dtypes, strict=False):
        elements = math.prod(shape)
        nbytes = elements * itemsize(dtype)
        if call.kind in _FREE_KINDS or size < 2:
            continue
        if call.kind in ("send", "recv"):
            total += Cost(1, elements, nbytes) if call.kind == "recv" else Cost(1)
        elif call.kind in ("broadcast", "scatter"):
            total += Cost(1) if call.root == rank else Cost(1, elements, nbytes)
        elif call.kind in ("reduce", "gather"):
            total += Cost(size - 1, (size - 1) * elements, (size - 1) * nbytes) if call.root == rank else Cost(1)
        else:
            total += cost_of(call.kind, elements, size, dtype)
    return total
