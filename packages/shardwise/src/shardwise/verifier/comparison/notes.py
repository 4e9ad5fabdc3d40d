"""What there is to say of two runs besides the tensors that differ: parameters that nothing trains, another convention.

gradients 2 times those of one rank, parameters after the last step equal       summed, and divided in the step
gradients of ranks that differ, parameters after the last step equal            averaged in the step
gradients left at the end that differ, parameters moved as on one rank          reduced to the rank that steps
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.finding import in_brackets
from shardwise.diagnostics.printing.limits import counted
from shardwise.interop.running.recording import Key, Record
from shardwise.mesh.axis import MeshAxis

from ..distance.hints import size_named
from ..distance.numbers import GRADIENTS, Against, Numbers, ValueDisagreement
from ..records.batches import is_shared, orders_apart
from ..records.record import RankRun, initial_parameters
from .drifted_buffers import drifted_buffers
from .own_counts import own_counts_note, without_weighted_losses
from .reading_by_size import is_same, training_inputs
from .step_settings import settings_note

_SHOWN = 3
_SAME_UPDATE = 0.05
"""Updates of a parameter that differ by less than this part of them are the same update."""


def with_notes(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun) -> Numbers:
    """``numbers`` with what two runs say beside them, and where something is wrong, with what may be why."""
    numbers = without_weighted_losses(numbers, ranks, alone)
    notes = [*numbers.notes, *ranks[0].narrow_sums, *_untrained(ranks, alone)]
    drifted = () if numbers.disagreements else drifted_buffers(ranks, alone)
    numbers = replace(numbers, questions=(*numbers.questions, *_same_data(ranks, alone), *drifted))
    lead = numbers.lead
    if lead is None:
        return replace(numbers, notes=tuple(notes))
    counts, settings = own_counts_note(numbers, ranks, alone), settings_note(ranks, alone)
    if settings is not None:
        step, taken, further = settings
        notes.append(f"step {step.step + 1}{in_brackets(step.location)} {taken}: {further}")
        if lead.key.nth > step.step + 1 or lead.key.kind in ("trained", "updated"):
            numbers = replace(numbers, why=f"step {step.step + 1} {taken}", why_at=step.location)
    if counts is not None:
        said, further = counts
        notes.append(f"{said}: {further}")
        if lead.key.kind == "loss" and not numbers.why:
            numbers = replace(numbers, why=said)
    return replace(numbers, notes=tuple(notes))


def _same_data(ranks: Sequence[RankRun], alone: RankRun) -> tuple[str, ...]:
    """Do ranks that a wrapper has share out the data train on the same? Their numbers are those of one rank, and they
    do its work over again: a sampler that was left out.
    """
    if len(ranks) < 2 or not ranks[0].data_parallel:
        return ()
    first, *others = map(training_inputs, (*ranks, alone))
    batches = [value for value in first.values() if value is not None and value.numel() > 1]
    alike = all(
        first.keys() == other.keys() and all(is_same(value, other[key]) for key, value in first.items())
        for other in others
    )
    if not batches or not alike:
        return ()
    return (
        "the model's wrapper shares out the data, and every rank trains on the same, which is all that one rank is "
        "given: without a share of its own (a DistributedSampler, or a slice by rank) more ranks train on no more data",
    )


def _untrained(ranks: Sequence[RankRun], alone: RankRun) -> tuple[str, ...]:
    """Of parameters that an optimizer has, that require a gradient, and that get none in either run."""
    names = [name for name in alone.untrained if any(name in run.untrained for run in ranks)]
    if not names:
        return ()
    some = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return (
        f"{counted(len(names), 'parameter')} that an optimizer has ({some}) got no gradient in either run: "
        "not used by the loss, detached, or meant to be frozen?",
    )


def with_feed(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun, *, asked: bool = True) -> Numbers:
    """``numbers`` with what the one rank was given: batches of DataLoaders, and random numbers.

    Ranks that draw the same batches and hold replicas are no data parallelism: one of them would do. Random numbers
    are given in the order of ranks, which need not be that of their parts: where the first loss does not agree, what
    differs is a question. ``asked``: by the user, who is told too that there was nothing to give.
    """
    batches = [run.batches for run in ranks]
    count, drawn = sum(map(len, batches[0].drawn.values())), alone.drawn_together
    if not count and not drawn:
        if not asked:
            return numbers
        return replace(numbers, notes=(*numbers.notes, "--feed has fed nothing: no DataLoader was iterated"))
    given = [f"{count} batches"] * bool(count) + [counted(drawn, "random draw")] * bool(drawn)
    said = f"one rank was given what all ranks drew together: {' and '.join(given)}"
    numbers = _asked(numbers) if drawn and not _first_loss_agrees(numbers, ranks) else numbers
    questions = numbers.questions
    if count and len(ranks) > 1 and is_shared(batches):
        said += "; all ranks drew the same, which is right where they share a batch and wrong for data parallelism"
        if _are_replicas(ranks):
            questions = (*questions, "all ranks hold the same parameters and drew the same batches")
    apart = orders_apart(batches)
    disagreements = numbers.disagreements
    if apart is not None:
        rank, order, how = apart
        what = f"is shared out by a DistributedSampler {how}: ranks draw some samples twice, and some nobody draws"
        key = Key("data", "", order.location)
        wrong = ValueDisagreement(
            key, "one order of one data set on all ranks", Against.RANKS, rank, (0, rank), (), (), None, what
        )
        disagreements = (wrong, *disagreements)
    return replace(numbers, notes=(*numbers.notes, said), questions=questions, disagreements=disagreements)


def _first_loss_agrees(numbers: Numbers, ranks: Sequence[RankRun]) -> bool:
    """Has a loss been compared, and is the first one right? Then random numbers lie where they belong."""
    losses = [one.key for one in ranks[0].entries if isinstance(one, Record) and one.key.kind == "loss"]
    apart = {one.key for one in numbers.disagreements} | {one.key for one in numbers.not_compared}
    return bool(losses) and losses[0] not in apart


def _asked(numbers: Numbers) -> Numbers:
    """``numbers`` with a question in place of what differs from the run on one rank by more than a clean factor."""
    differing = [one for one in numbers.disagreements if one.against is not Against.RANKS and not one.hint]
    if not differing:
        return numbers
    first = differing[0]
    what = f"{first.key.kind} {first.key.name}".rstrip()
    asked = f"where one rank draws what the ranks draw, one behind the other, {what} {first.said}"
    kept = tuple(one for one in numbers.disagreements if one not in differing)
    return replace(numbers, disagreements=kept, questions=(*numbers.questions, asked), module=None)


def _are_replicas(ranks: Sequence[RankRun]) -> bool:
    first, *others = map(initial_parameters, ranks)
    return all(
        first.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in first.items())
        for other in others
    )


def with_convention(
    numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun, names: Mapping[MeshAxis, str]
) -> Numbers:
    """``numbers`` where all that is wrong are gradients that the step evens out: the parameters are updated alike.

    A division in the step is a convention, and so are sums that the step issues; nothing is wrong. An optimizer whose
    steps do not depend on the scale hides a mistake as well: that stays one.
    """
    if any(run.talking_steps for run in ranks):
        return _with_sums_in_the_step(numbers, ranks, alone)
    numbers = _without_what_is_left(numbers, ranks, alone)
    factors = [_factor_of(wrong) for wrong in numbers.disagreements]
    if not factors or factors[0] is None or not _same_updates(ranks, alone):
        return numbers
    first = factors[0]
    if any(factor is None or not math.isclose(factor, first, rel_tol=1e-2) for factor in factors):
        return numbers
    over = size_named(first, names)
    if not over:
        return numbers
    size = f"{first:.3g}"
    if alone.scale_free:
        note = (
            f"every gradient that differs is {size} times that of one rank ({over}), and the parameters are updated "
            "alike: the optimizer's step does not depend on the scale, so nothing shows yet. Norms, clipping, weight "
            "decay that is added to gradients, and the optimizer's epsilon do depend on it"
        )
        return replace(numbers, notes=(*numbers.notes, note))
    note = (
        f"{counted(len(factors), 'gradient')} entered the optimizer {size} times as large as on one rank ({over}), and "
        "the parameters are updated alike: a convention, with the division in the step"
    )
    return replace(numbers, disagreements=(), notes=(*numbers.notes, note), equal=numbers.equal + len(factors))


def _with_sums_in_the_step(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun) -> Numbers:
    """An optimizer that communicates may sum gradients itself: then only what it makes of parameters can be judged."""
    wrong = numbers.disagreements
    if not wrong or any(one.key.kind != "gradient" for one in wrong) or not _same_updates(ranks, alone):
        return numbers
    scaled = [_factor_of(one) for one in wrong]
    if alone.scale_free and all(factor is not None for factor in scaled):
        return numbers
    note = (
        f"{counted(len(wrong), 'gradient')} entered the optimizer otherwise than on one rank: its step issues "
        "collectives, and the parameters are updated as on one rank"
    )
    return replace(numbers, disagreements=(), notes=(*numbers.notes, note))


def _without_what_is_left(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun) -> Numbers:
    """Ranks may reduce a gradient to the one that steps with it and sends the parameter on, without torch's optimizers.
    Then what the others have left at the end is nothing to judge by: every rank's parameters are.
    """
    wrong = numbers.disagreements
    if not any(one.against is Against.RANKS for one in wrong) or any(one.key.kind != "left" for one in wrong):
        return numbers
    moved = {name for name, (before, after) in _ends(alone).items() if not torch.equal(before, after)}
    if not moved.issuperset(one.key.name for one in wrong) or not all(_same_updates([one], alone) for one in ranks):
        return numbers
    note = (
        f"{counted(len(wrong), 'gradient')} that no optimizer of torch has taken ended otherwise than on one rank, and "
        "every rank's parameters are updated as there: reduced where they are needed"
    )
    return replace(numbers, disagreements=(), notes=(*numbers.notes, note))


def _factor_of(wrong: ValueDisagreement) -> float | None:
    """The factor of a gradient that differs from that of one rank; None for all else."""
    if wrong.key.kind not in GRADIENTS or wrong.against is not Against.ALONE or wrong.difference is None:
        return None
    return wrong.difference.factor


def _same_updates(ranks: Sequence[RankRun], alone: RankRun) -> bool:
    """Have the steps changed every replicated parameter by what they change it by on one rank?"""
    here, there = _ends(ranks[0]), _ends(alone)
    compared = False
    for name, (before, after) in there.items():
        own_before, own_after = here.get(name, (None, None))
        if own_before is None or own_after is None or own_before.shape != before.shape:
            continue
        update, own = after.double() - before.double(), own_after.double() - own_before.double()
        if float((own - update).norm()) > _SAME_UPDATE * float(update.norm()):
            return False
        compared |= bool(update.any())
    return compared


def _ends(run: RankRun) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The values of every parameter before the first step and after the last, by name."""
    values: dict[str, dict[str, torch.Tensor]] = {"parameter": {}, "trained": {}}
    for entry in run.entries:
        if isinstance(entry, Record) and entry.key.kind in values and entry.value is not None:
            values[entry.key.kind].setdefault(entry.key.name, entry.value)
    return {
        name: (value, values["trained"][name])
        for name, value in values["parameter"].items()
        if name in values["trained"]
    }
