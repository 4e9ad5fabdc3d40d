"""What the collectives that ranks issued cost: calls of a trace with bytes, messages and estimated time.

Bytes follow from shapes and are exact for the ring algorithms of ``planner/cost.py``. Time needs to know the network,
which is what the configuration says of it, or what ``planner/links.py`` assumes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from shardwise.diagnostics.run_record import AssumedLink, CostedCall
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.layout import layout_of_ranks
from shardwise.planner.cost import FREE, Cost, Interconnect, cost_of, itemsize
from shardwise.planner.links import DEFAULT, Links

from .calls import Trace, TracedCall

_FREE_KINDS = ("new_group", "barrier")


def costed(
    traces: Sequence[Trace], bandwidth: Mapping[str, float] | None = None, latency: Mapping[str, float] | None = None
) -> tuple[tuple[CostedCall, ...], tuple[AssumedLink, ...]]:
    """The calls of all ranks, rank by rank in the order of the program; and what their times rest on.

    ``bandwidth``, ``latency``  bytes per second and seconds per message by the names of axes, where they are known.
    """
    links = _links(traces, bandwidth or {}, latency or {})
    calls: list[CostedCall] = []
    assumed: dict[str, AssumedLink] = {}
    for trace in traces:
        for call in trace.exchanges():
            link = links.over(call.group.ranks)
            calls.append(_call(trace.rank, call, link))
            said = "" if link != DEFAULT else "assumed: [tool.shardwise] can say bandwidth and latency"
            axis = calls[-1].axis
            assumed.setdefault(axis, AssumedLink(axis, link.latency_s, link.bytes_per_s, said))
    return tuple(calls), tuple(assumed.values())


def _links(traces: Iterable[Trace], bandwidth: Mapping[str, float], latency: Mapping[str, float]) -> Links:
    """Of the axes that the ranks' groups are named after."""
    axes: dict[str, MeshAxis] = {}
    for trace in traces:
        for event in trace.events:
            if isinstance(event, TracedCall) and event.group.name in {*bandwidth, *latency}:
                layout = layout_of_ranks(event.group.ranks)
                if layout is not None:
                    axes.setdefault(event.group.name, MeshAxis(layout))
    return Links.by_name(bandwidth, latency, axes)


def _call(rank: int, call: TracedCall, link: Interconnect) -> CostedCall:
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
        seconds=cost.seconds(link),
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
