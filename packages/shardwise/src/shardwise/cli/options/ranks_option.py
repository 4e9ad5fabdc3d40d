"""What does ``--ranks`` say? All ranks, the corners of the mesh, or those that are listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.mesh.shape import corners

MOST = 64
"""Ranks that are run without being listed: each is a process with the program in it."""


@dataclass(frozen=True)
class RankChoice:
    """``all``, ``corners``, or the ranks that are listed."""

    word: str = ""
    listed: tuple[int, ...] = ()

    def require(self, world_size: int, *, said_by: str = "--ranks") -> None:
        """A usage error if these ranks cannot be run in a world of this size. ``said_by``: where they are chosen."""
        if self.word == "all" and world_size > MOST:
            raise click.UsageError(
                f"{said_by} all would start {world_size} processes, more than {MOST}: --ranks corners runs the first "
                "and the last rank of each mesh axis, where ranks differ if at all; or list some: --ranks 0-7,63"
            )
        outside = [rank for rank in self.listed if rank >= world_size]
        if outside:
            said = f"{ranks_text(outside)} {'is' if len(outside) == 1 else 'are'} not in a world of {world_size}"
            raise click.UsageError(f"{said_by}: {said}: ranks go from 0 to {world_size - 1}")

    def ranks(self, world_size: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
        """The ranks, on a mesh of these sizes (None: ranks in a row)."""
        if self.word == "all":
            return tuple(range(world_size))
        return self.listed or corners(world_size, sizes)


class RanksParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``--ranks``."""

    name = "ranks"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> RankChoice:
        if value in ("all", "corners"):
            return RankChoice(word=value)
        ranks: set[int] = set()
        for part in value.split(","):
            first, dash, last = (piece.strip() for piece in part.partition("-"))
            if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
                of = "" if part.strip() == value.strip() else f" in {value!r}"
                what = f"{part.strip()!r}{of} is no rank"
                self.fail(f"{what}: write all, corners or a list like 0,3,5-7", param, ctx)
            ranks |= set(range(int(first), int(last or first) + 1))
        return RankChoice(listed=tuple(sorted(ranks)))
