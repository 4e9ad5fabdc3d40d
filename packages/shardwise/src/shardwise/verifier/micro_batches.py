"""Micro-batches that are composed otherwise on a mesh than on one rank, though every step sees the same samples.

A rank that takes its share of a batch first and cuts that into micro-batches then has in its first one what is spread
over several in the run on one rank. What must agree is the step: the samples of all its micro-batches on all ranks, and
the mean of their losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from shardwise.interop.running.recording import Draw, Key, Record

Entries = Mapping[Key, Record | Draw]
LARGEST = 1 << 20
"""Elements of a step beyond which samples are not sorted out."""
_CLOSE = 1e-4


class MicroBatches:
    """The inputs and losses of the ranks by optimizer step.

    ``regrouped``  a step has been found whose micro-batches are composed otherwise.
    """

    def __init__(self, ranks: Sequence[Entries], alone: Entries) -> None:
        self._runs = (*ranks, alone)
        self._steps = [_steps(run) for run in self._runs]
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
            *ranks, alone = [self._values(key, at, step) for at in range(len(self._runs))]
            held = [values for values in ranks if values]
            same = _same_samples if key.kind == "input" else _same_mean
            found = bool(held and alone) and (key.kind == "input" or self.regrouped) and same(held, alone)
            self._known[key.source, step] = found
        self.regrouped |= found and key.kind == "input"
        return found

    def _values(self, key: Key, at: int, step: int) -> list[torch.Tensor]:
        run, steps = self._runs[at], self._steps[at]
        records = [record for other, record in run.items() if other.source == key.source and steps[other] == step]
        return [record.value for record in records if isinstance(record, Record) and record.value is not None]


def _steps(run: Entries) -> dict[Key, int]:
    """How many optimizer steps have been taken before each record."""
    steps: dict[Key, int] = {}
    taken = 0
    for key in run:
        if key.kind == "gradient":
            taken = max(taken, key.nth)
        steps[key] = taken
    return steps


def _same_samples(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    """Are the rows of all ranks those of the one, in whatever order? Ranks that hold the same are replicas."""
    tensors = [tensor for values in (*ranks, alone) for tensor in values]
    if any(not tensor.ndim or tensor.shape[1:] != tensors[0].shape[1:] for tensor in tensors):
        return False
    if sum(tensor.numel() for tensor in tensors) > LARGEST:
        return False
    distinct: list[torch.Tensor] = []
    for values in ranks:
        held = torch.cat(list(values))
        if not any(torch.equal(held, other) for other in distinct):
            distinct.append(held)
    return _rows(torch.cat(distinct)) == _rows(torch.cat(list(alone)))


def _rows(x: torch.Tensor) -> list[list[float]]:
    rows: list[list[float]] = x.flatten(1).tolist() if x.ndim > 1 else x[:, None].tolist()
    return sorted(rows)


def _same_mean(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    here = torch.stack([torch.stack(list(values)).double().mean() for values in ranks]).mean()
    there = torch.stack(list(alone)).double().mean()
    return bool((here - there).abs() <= _CLOSE * there.abs())
