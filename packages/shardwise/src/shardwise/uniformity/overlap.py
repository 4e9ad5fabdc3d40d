"""When a rank's collectives run, as the program issues them and waits for them: what overlaps, and what could.

Collectives over axes that are independent use different links, so they run at the same time if the program lets them.
Those that share ranks' links follow each other. What the program computes takes no time here.
"""

from __future__ import annotations

from collections.abc import Callable

from shardwise.mesh.axis import MeshAxis

from .calls import Trace, TracedCall, Wait


def seconds_as_issued(
    trace: Trace, seconds_of: Callable[[TracedCall], float], over: Callable[[TracedCall], MeshAxis | None]
) -> float:
    """The time until the last of the rank's collectives has ended, of which ``over`` says the axis that each runs over.

    A call that blocks ends before the next one starts; one that does not goes on until it is waited for.
    """
    clock = 0.0
    ends: dict[int, float] = {}
    free: dict[object, float] = {}
    for at, event in enumerate(trace.events):
        if isinstance(event, Wait):
            clock = max([clock, *(ends[one] for one in event.events if one in ends)])
        elif event.kind != "new_group":
            used = over(event)
            start = max([clock, *(until for other, until in free.items() if not _apart(used, other))])
            ends[at] = free[used] = start + seconds_of(event)
            if event.blocking:
                clock = ends[at]
    return max([clock, *ends.values()])


def _apart(one: object, other: object) -> bool:
    return isinstance(one, MeshAxis) and isinstance(other, MeshAxis) and one.isorthogonal(other)
