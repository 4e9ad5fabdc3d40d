"""What one rank issues, kept by the rank itself: for its schedule, and for what it receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardwise.worlds.absent_objects import OtherRanksNeeded

from .calls import TracedCall, Wait


class KeptCalls:
    """The calls of this rank; a ``collective_trace.Link`` to nobody."""

    def __init__(self) -> None:
        self.events: list[TracedCall | Wait] = []

    def post(self, event: TracedCall | Wait, parcel: bytes | None = None, fetches: bool = False) -> int:
        """Keep an event; its position."""
        self.events.append(event)
        return len(self.events) - 1

    def fetch(self, position: int) -> Mapping[int, bytes] | None:
        """Nobody else hands anything in. OtherRanksNeeded where the program goes on with what it receives."""
        event = self.events[position]
        if isinstance(event, TracedCall) and event.kind == "recv" and not event.shapes:
            raise OtherRanksNeeded(f"a rank receives objects from {event.what.rpartition(' from ')[2]}")
        return None

    def mesh(self, sizes: Sequence[int]) -> None:
        """A mesh has been made; there are no ranks to choose."""

    def tell(self, what: object) -> None:
        """Nobody is there to compare with."""
