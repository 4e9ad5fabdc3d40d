"""Micro-batches that are composed otherwise on a mesh than on one rank, though every step sees the same samples.

A rank that takes its share of a batch first and cuts that into micro-batches then has in its first one what is spread
over several in the run on one rank; where their size is given, a rank has fewer of them. What must agree is the step:
samples of all its micro-batches on all ranks, and the mean of their losses, or their sum. Where ranks deal out the
micro-batches themselves (``for i in range(rank, n, world)``), their losses together are those of one rank.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.interop.running.recording import Draw, Key, Record

from .samples import same_samples

Entries = Mapping[Key, Record | Draw]
_CLOSE = 1e-4


class MicroBatches:
    """The inputs and losses of the ranks by optimizer step.

    ``steps``      of every run, ranks first: before how many records each step was taken.
    ``regrouped``  a step has been found whose micro-batches are composed otherwise.
    """

    def __init__(self, ranks: Sequence[Entries], alone: Entries, steps: Sequence[Sequence[int]]) -> None:
        self._runs = (*ranks, alone)
        self._steps = [_steps(run, taken) for run, taken in zip(self._runs, steps, strict=True)]
        self._known: dict[tuple[Key, int], bool] = {}
        self.regrouped = False

    def step_of(self, key: Key) -> int:
        """How many optimizer steps had been taken when a record arose, in the first run that has it."""
        return next(steps[key] for steps in self._steps if key in steps)

    def explain(self, key: Key) -> bool:
        """Do the records of the step of ``key``, an input or a loss, agree as a whole?"""
        step = self.step_of(key)
        found = self._known.get((key.source, step))
        if found is None:
            runs = [self._values(key, at, step) for at in range(len(self._runs))]
            found = _agree(key, runs, self.regrouped)
            if key.kind == "input" and not found:
                found = _agree(key, _without_rehearsal(runs), self.regrouped)
            self._known[key.source, step] = found
        self.regrouped |= found and key.kind == "input"
        return found

    def shared_out(self, key: Key, there: Key) -> bool:
        """Has a rank fewer calls of a module than one rank, as where ranks share out the members of a population?"""
        *ranks, alone = self._runs
        own = [count for run in ranks if (count := sum(other.source == key.source for other in run))]
        return min(own, default=0) < sum(other.source == there.source for other in alone)

    def mispaired(self, key: Key) -> bool:
        """Do the ranks have the samples of an input, but beside other samples of the first input than on one rank?"""
        first = self._first_input(key)
        if key.kind != "input" or first in (None, key.name):
            return False
        step, other = self.step_of(key), replace(key, name=first)
        runs = [(self._values(other, run, step), self._values(key, run, step)) for run in range(len(self._runs))]
        return _are_mispaired(runs) and _are_mispaired([_without_rehearsal(of_run) for of_run in runs])

    def _first_input(self, key: Key) -> str | None:
        module = key.name.partition(" of ")[2]
        inputs = (other.name for run in self._runs for other in run if other.kind == "input")
        return next((name for name in inputs if name.partition(" of ")[2] == module), None)

    def _values(self, key: Key, at: int, step: int) -> list[torch.Tensor]:
        run, steps = self._runs[at], self._steps[at]
        records = [record for other, record in run.items() if other.source == key.source and steps[other] == step]
        return [record.value for record in records if isinstance(record, Record) and record.value is not None]


def _agree(key: Key, runs: Sequence[Sequence[torch.Tensor]], regrouped: bool) -> bool:
    """Are the samples, or the mean of the losses, those of the last run?"""
    *ranks, alone = runs
    held = [values for values in ranks if values]
    if not held or not alone:
        return False
    if key.kind == "input":
        is_number = all(not value.ndim for values in (*held, alone) for value in values)
        return (_same_numbers if is_number else same_samples)(held, alone)
    return (regrouped and _same_mean(held, alone)) or _dealt_out(held, alone)


def _are_mispaired(runs: Sequence[Sequence[Sequence[torch.Tensor]]]) -> bool:
    """Does a run have other pairs of samples? Of every run the first input and another, ranks first."""
    pairs = [[_beside(*pair) for pair in zip(*inputs, strict=False)] for inputs in runs]
    if any(pair is None for of_run in pairs for pair in of_run):
        return False
    *ranks, alone = [[pair for pair in of_run if pair is not None] for of_run in pairs]
    held = [values for values in ranks if values]
    return bool(held and alone) and not same_samples(held, alone)


def _without_rehearsal(inputs: Sequence[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """A pipeline runs its first micro-batch once more beforehand, to see the shapes that its stages exchange."""
    return [values[1:] if len(values) > 1 and torch.equal(values[0], values[1]) else values for values in inputs]


def _steps(run: Entries, taken: Sequence[int]) -> dict[Key, int]:
    """How many optimizer steps have been taken before each record."""
    return {key: bisect.bisect_right(taken, at) for at, key in enumerate(run)}


def _same_numbers(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    """Is what each micro-batch of a step is given beside its samples one number, which is that of the one rank, or one
    of its terms? As the tokens of all, which each of two ranks may have halved, or taken for twice its own.
    """
    whole, *others = [torch.stack(list(values)).double() for values in (alone, *ranks)]
    if any((one != one[0]).any() for one in (whole, *others)):
        return False
    firsts = torch.stack([one[0] for one in others])
    return any(
        bool(((one - whole[0]).abs() <= _CLOSE * whole[0].abs()).all()) for one in (firsts, firsts.sum(), firsts.mean())
    )


def _beside(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    """The samples of two inputs, each beside its partner; None if they are not as many."""
    if not one.ndim or not other.ndim or len(one) != len(other):
        return None
    return torch.cat([one.double().view(len(one), -1), other.double().view(len(other), -1)], 1)


def _same_mean(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    """Also where a loss is a part of that of the step, and micro-batches are as many as fit: then their sums count."""
    whole, *others = [torch.stack(list(values)).double() for values in (alone, *ranks)]
    sums = torch.stack([one.sum() for one in others])
    means = torch.stack([one.mean() for one in others])
    pairs = ((means.mean(), whole.mean()), (sums.mean(), whole.sum()), (sums.sum(), whole.sum()))
    return any(bool((here - there).abs() <= _CLOSE * there.abs()) for here, there in pairs)


def _dealt_out(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    """Has each rank fewer losses of a step, which together are those of one rank, each as often as any other?

    one rank    a/4 b/4 c/4 d/4
    ranks       a/4 c/4   b/4 d/4      or a/2 c/2   b/2 d/2: each divides by the number of its own
    """
    fewer = max(map(len, ranks)) < len(alone)
    of_ranks = [value.double() for values in ranks for value in values]
    if not fewer or len(of_ranks) % len(alone) or any(value.numel() != 1 for value in (*of_ranks, *alone)):
        return False
    times = len(of_ranks) // len(alone)
    held = torch.stack([value.reshape(()) for value in of_ranks]).sort().values
    whole = torch.stack([value.double().reshape(()) for value in alone]).sort().values.repeat_interleave(times)
    shares = (1.0, len(ranks[0]) / len(alone))
    return any(bool(((share * held - whole).abs() <= _CLOSE * whole.abs()).all()) for share in shares)
