"""Which parts of a trace are there, and which variable makes torch write those that are not."""

from __future__ import annotations

from dataclasses import dataclass

from tracewise.model.entities import Run

MAX_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Something that a trace may have: what it answers, and the setting that brings it."""

    name: str
    is_there: bool
    answers: str
    setting: str


def find_parts(run: Run) -> list[Part]:
    """The parts of one run."""
    units = [*run.compilations, *(rank.outside for rank in run.ranks)]
    titles = {record.title for unit in units for record in unit.records}
    kinds = {record.kind for unit in units for record in unit.records}
    has_timeline = any(rank.spans for rank in run.ranks)
    return [
        Part("compilations", bool(run.compilations), "what was compiled, and what failed", "TORCH_TRACE=DIR"),
        Part("timeline", has_timeline, "where the compile time went", "TORCH_TRACE=DIR"),
        Part(
            "provenance",
            any("provenance_tracking" in title for title in titles),
            "which line became which kernel",
            "INDUCTOR_PROVENANCE=1",
        ),
        Part(
            "estimates",
            "inductor_runtime_and_tensor_meta" in titles,
            "estimated run times and shapes of each operation",
            "LOG_TLPARSE=1",
        ),
        Part(
            "symbolic shapes in detail",
            bool(kinds & {"guard_added", "expression_created"}),
            "how each condition on sizes came to be",
            "TORCH_DTRACE=DIR instead of TORCH_TRACE",
        ),
    ]


def missing_ranks(numbers: set[int], world_size: int = 0) -> list[int]:
    """The ranks below the highest known one, or below the size of the world, that left nothing."""
    size = max(world_size, max(numbers, default=-1) + 1)
    # A damaged number must not make a list of millions.
    return sorted(set(range(size)) - numbers) if size <= MAX_RANKS else []
