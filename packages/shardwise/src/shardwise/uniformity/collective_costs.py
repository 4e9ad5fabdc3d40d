"""What the collectives that ranks issued cost: calls of a trace with bytes, messages and estimated time.

Bytes follow from shapes and are exact for the ring algorithms of ``planner/cost.py``. Time needs to know the network,
which is what the configuration says of it, or what ``planner/links.py`` assumes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shardwise.diagnostics.run_record import AssumedLink, CostedCall
from shardwise.mesh.axis import MeshAxis
from shardwise.planner.cost import FREE, Cost, Interconnect, cost_of, itemsize
from shardwise.planner.links import DEFAULT, Links

from .calls import Trace, TracedCall
from .links_used import KnownAxes, axis_of

_FREE_KINDS = ("new_group", "barrier")


def costed(
    traces: Sequence[Trace],
    bandwidth: Mapping[str, float] | None = None,
    latency: Mapping[str, float] | None = None,
    mesh: Mapping[str, MeshAxis] | None = None,
) -> tuple[tuple[CostedCall, ...], tuple[AssumedLink, ...]]:
    """The calls of all ranks, rank by rank in the order of the program; and what their times rest on.

    ``bandwidth``, ``latency``  bytes per second and seconds per message by the names of axes, where they are known.
    ``mesh``                    the axes of the ranks, if it is known: along these their messages go.
    """
    known = KnownAxes.of(traces, (mesh or {}).values())
    names = {**known.groups, **(mesh or {})}
    links = Links.by_name(bandwidth or {}, latency or {}, names)
    calls: list[CostedCall] = []
    assumed: dict[str, AssumedLink] = {}
    for trace in traces:
        for call in trace.exchanges():
            over = known.used(call, trace.rank)
            link = links.over(call.group.ranks) if over is None else links.along(over)
            calls.append(_call(trace.rank, call, _name(call, over, names), link))
            said = "" if link != DEFAULT else "assumed: [tool.shardwise] can say bandwidth and latency"
            axis = calls[-1].axis
            assumed.setdefault(axis, AssumedLink(axis, link.latency_s, link.bytes_per_s, said))
    return tuple(calls), tuple(assumed.values())


def _name(call: TracedCall, over: MeshAxis | None, names: Mapping[str, MeshAxis]) -> str:
    """What the group of a call is called, or the axis over which a message goes, if its group has others too."""
    group = call.group
    if over is not None and call.is_message and over is not axis_of(group):
        return next((name for name, axis in names.items() if axis is over), repr(over))
    return group.name or "ranks " + ", ".join(map(str, group.ranks))


def _call(rank: int, call: TracedCall, axis: str, link: Interconnect) -> CostedCall:
    cost = _cost(rank, call)
    return CostedCall(
        kind=call.kind,
        axis=axis,
        ranks=call.group.ranks if call.peer is None else tuple(sorted((rank, call.peer))),
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
