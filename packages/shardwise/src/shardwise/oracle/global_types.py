"""How does a ruleset of global types compare with the numbers? Every claim of one operator, held against the truth.

``true_placements(fn, tensors)`` finds every true *fact* about ``fn``: placements of the tensor operands (R, S(i) or P)
with placements of the results. ``truth.py`` says when one is true.

``check_claims(fn, tensors, ask)`` compares the facts with a ruleset. ``ask(fn, local_tensors, placements)`` gives the
rules' placement per result (None: no claim about this one), or a string: why it refuses. The ``Report`` lists what
the rules say and the numbers refute (``wrong``) and what is true and the rules refuse (``missing``).

``fn`` takes the tensors only, the global ones or a rank's; a size argument that is local must be computed from them.
Kernels that trust their sizes and indices may crash on placements that do not fit: those need a process of their own.
It must not write to its operands and must draw no random numbers, unless it seeds them. Give float64 values, which tell
a small lie from rounding, and dims whose sizes are no multiple of three, so that shards are uneven.
``refute_on_grid`` tries one claim on a mesh of several axes.
Source: docs/semantics.md section 7, Law 7.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from shardwise.types.tensor_type import TensorType

from .local_types import Op, Tensors, gradients, leaf_of
from .reassemble import Grid, Unreadable, deal, reassemble
from .rounding import close
from .sharded_types import FAILURES, Answer, Fact, Placements, Truth, run

Ask = Callable[[Op, Tensors, Placements], Answer]
_TO_BE_SURE = 6
"""Sets of values on which a fact must hold before the rules are blamed for refusing it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A claim along an axis of ``size`` ranks and what refutes it, or a truth and why the rules refuse it."""

    fact: Fact
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{self.fact} over {self.size} ranks: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """How a ruleset compares with the numbers.

    ``wrong``    claims that the numbers refute. ``missing``: truths that the rules refuse, with their reason.
    ``covered``  how many placements of the operands have a true fact and a true claim.
    """

    wrong: tuple[Mismatch, ...]
    missing: tuple[Mismatch, ...]
    covered: int


def true_placements(fn: Op, tensors: Sequence[torch.Tensor], *, size: int = 2, value_sets: int = 2) -> set[Fact]:
    """Every fact about ``fn`` that holds on the given values and on ``value_sets - 1`` other ones."""
    truth = Truth(fn, tensors, size=size, value_sets=value_sets)
    return {fact for operands in truth.cuts() for fact in truth.facts(operands)}


def check_claims(
    fn: Op,
    tensors: Sequence[torch.Tensor],
    ask: Ask,
    *,
    sizes: Sequence[int] = (2, 3),
    value_sets: int = 2,
    others: Tensors | None = None,
) -> Report:
    """What a ruleset gets wrong about ``fn``, and what it misses.

    ``sizes``  of the axis. A truth that holds for some sizes only (because shards are even there) is not missed; a
               claim must hold for all of them.
    ``others`` the second set of values, where reordered ones would not do (sorted boundaries, say).
    """
    truths = [Truth(fn, tensors, size=size, value_sets=value_sets, others=others) for size in sizes]
    wrong: list[Mismatch] = []
    missing: list[Mismatch] = []
    covered = 0
    if not truths[0].wholes[0][1]:  # no tensor comes out, so nothing is claimed
        return Report((), (), 0)
    surer = functools.cache(lambda: Truth(fn, tensors, size=sizes[0], value_sets=_TO_BE_SURE, others=others))
    for operands in dict.fromkeys(cut for truth in truths for cut in truth.cuts()):
        able = [truth for truth in truths if operands in truth.cuts()]
        found = _wrong_claims(able, operands, ask)
        if found:
            wrong += found
            continue
        true = set.intersection(*[truth.facts(operands) for truth in able])
        true = {fact for fact in true if not able[0].is_accident(fact)}
        if true:
            reason = _refusal(able, operands, ask)
            if reason is None:
                covered += 1
            elif true := {fact for fact in true if surer().refute(operands, fact.results) is None}:
                missing.append(Mismatch(min(true, key=str), able[0].size, reason))
    return Report(tuple(wrong), tuple(missing), covered)


def _wrong_claims(truths: Sequence[Truth], operands: Placements, ask: Ask) -> list[Mismatch]:
    """Claims about these operands that some rank's rules make and the numbers refute."""
    for truth in truths:
        for local in truth.locals(operands):
            answer = ask(truth.fn, local, operands)
            if isinstance(answer, str):
                continue
            reason = truth.refute(operands, answer)
            if reason is not None:
                shown = Fact(operands, tuple(place for place in answer if place is not None))
                return [Mismatch(shown, truth.size, reason)]
    return []


def _refusal(truths: Sequence[Truth], operands: Placements, ask: Ask) -> str | None:
    """Why the rules refuse these operands on the first rank, which has the longest shards; None if it does not."""
    for truth in truths:
        answer = ask(truth.fn, truth.locals(operands)[0], operands)
        if isinstance(answer, str):
            return answer
    return None


def refute_on_grid(
    fn: Op, tensors: Sequence[torch.Tensor], types: Sequence[TensorType], claims: Sequence[TensorType], grid: Grid
) -> str | None:
    """Why operands of these types do not give results of the claimed types on ``grid``; None: they do, both ways.

    Dims that are cut must be multiples of their axes. Errors: ``Unreadable`` if they are not.
    """
    generator = torch.Generator().manual_seed(0)
    dealt = [deal(value, type, grid, generator) for value, type in zip(tensors, types, strict=True)]
    leaves, outs = run(fn, [leaf_of(value) for value in tensors])
    try:
        ranks = [run(fn, [leaf_of(pieces[rank]) for pieces in dealt]) for rank in range(len(grid.coordinates))]
    except FAILURES as error:
        return f"the operator fails on the ranks' parts: {error}"
    for at, (out, claim) in enumerate(zip(outs, claims, strict=True)):
        reason = _misread_on_grid([local[at].detach() for _, local in ranks], claim, out.detach(), grid)
        if reason:
            return f"result {at}: {reason}"
    sent = [at for at, out in enumerate(outs) if out.requires_grad]
    if not sent:
        return None
    cotangents = [torch.randn(outs[at].shape, dtype=outs[at].dtype, generator=generator) for at in sent]
    parts = [
        deal(cotangent, claims[at].backward_type(), grid, generator)
        for at, cotangent in zip(sent, cotangents, strict=True)
    ]
    wanted = gradients(leaves, outs, cotangents)
    found = [gradients(local, results, [p[rank] for p in parts]) for rank, (local, results) in enumerate(ranks)]
    for at, (type, whole) in enumerate(zip(types, wanted, strict=True)):
        if whole is not None:
            own = [each[at] for each in found]
            reason = _misread_on_grid([piece for piece in own if piece is not None], type.backward_type(), whole, grid)
            if reason:
                return f"the gradient of operand {at}: {reason}"
    return None


def _misread_on_grid(pieces: Sequence[torch.Tensor], type: TensorType, whole: torch.Tensor, grid: Grid) -> str | None:
    try:
        found = reassemble(pieces, type, grid, tolerance=1e-9)
    except Unreadable as error:
        return str(error)
    return None if close(found, whole) else f"put together as {type}, it is not the global one"
