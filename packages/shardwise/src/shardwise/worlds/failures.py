"""What can go wrong when a program runs on several ranks? One error each, and every one names ranks."""

from __future__ import annotations

from .waiting import Standing, listed, told


class RankFailure(RuntimeError):
    """A rank raised. ``rank`` is its number; its exception is the ``__cause__`` where it could be carried over."""

    def __init__(self, rank: int, world_size: int, report: str, others: tuple[int, ...] = ()) -> None:
        also = f"; so did {listed(others)}" if others else ""
        super().__init__(f"rank {rank} of {world_size} failed{also}\n\n{report}")
        self.rank = rank


class RankTimeout(TimeoutError):
    """Some ranks did not finish in time, or stood still, all of them, for ``still_s`` seconds.

    ``ranks``      their numbers.
    ``standings``  where every rank was: the collective it had entered, and who never came to it.
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        world_size: int,
        timeout_s: float,
        stacks: str,
        standings: tuple[Standing, ...] = (),
        *,
        still_s: float | None = None,
    ) -> None:
        late = f"did not finish in {timeout_s:g} s" if still_s is None else f"stood still for {still_s:g} s"
        parts = [f"{listed(ranks)} of {world_size} {late}", told(standings), stacks]
        super().__init__("\n\n".join(part for part in parts if part).rstrip())
        self.ranks = ranks
        self.standings = standings


class Deadlock(RuntimeError):
    """Every rank waits or has ended, so none can go on. ``standings`` is where each was."""

    def __init__(self, world_size: int, standings: tuple[Standing, ...]) -> None:
        waiting = tuple(one.rank for one in standings if one.entered)
        verb = "waits" if len(waiting) == 1 else "wait"
        super().__init__(f"{listed(waiting)} of {world_size} {verb} for what never comes\n\n{told(standings)}")
        self.standings = standings


class CollectiveMismatch(RuntimeError):
    """Two ranks met in a collective with different calls. ``ranks`` are their numbers, the first comer first."""

    def __init__(self, ranks: tuple[int, int], report: str) -> None:
        super().__init__(report)
        self.ranks = ranks
