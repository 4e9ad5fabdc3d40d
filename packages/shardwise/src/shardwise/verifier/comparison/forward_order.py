"""Which module is the first whose output is wrong for its own sake, and not because a step before it was?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwise.interop.running.recording import Draw, Key, Record

from ..distance.numbers import ValueDisagreement
from ..layouts.observed import ObservedComparison

Runs = Sequence[Mapping[Key, Record | Draw]]


def first_module(
    modules: Sequence[ValueDisagreement],
    others: Sequence[ValueDisagreement],
    observed: ObservedComparison | None,
    runs: Runs,
) -> ValueDisagreement | None:
    """The first of ``modules``, which are wrong, that is called before or in the first step with something wrong, with
    the place where a rank calls it.
    """
    if observed is None:
        return None
    step = min((observed.step_of(other.key) for other in others), default=0)
    found = next((module for module in modules if observed.step_of(module.key) <= step), None)
    if found is None:
        return None
    return with_use(found, runs)


def with_use(found: ValueDisagreement, runs: Runs) -> ValueDisagreement:
    """``found`` with the place where a rank calls the module whose input or output it is."""
    records = [run.get(found.key) for run in runs]
    uses = (one.use.location for one in records if isinstance(one, Record) and one.use is not None)
    return replace(found, use=next(uses, None))
