"""Is a claimed sharding true? Numeric ground truth for global types, along one mesh axis, in one process.

``true_placements(fn, tensors)`` finds every true *fact* about ``fn``: placements of the tensor operands (R, S(i) or P)
with placements of the results. The operands' global values are dealt out accordingly, ``fn`` runs once per rank on the
local tensors, and a fact is true if the local results, put together as it says, are ``fn`` of the global values; and if
the gradients computed per rank from a cotangent dealt out at the results' duals, put together at the operands' duals,
are the gradients of ``fn`` on the global values (R and P are each other's dual, S(i) is its own).

``check_book(fn, tensors, ask)`` compares the facts with a rule book. ``ask(fn, local_tensors, placements)`` gives the
book's placement per result (None: no claim about this one), or a string: why it refuses. The ``Report`` lists what
the book says and the numbers refute (``wrong``) and what is true and the book refuses (``missing``).

``fn`` takes the tensors only, the global ones or a rank's; a size argument that is local must be computed from them.
Kernels that trust their sizes and indices may crash on placements that do not fit: those need a process of their own.
It must not write to its operands and must draw no random numbers, unless it seeds them. Give float64 values, which tell
a small lie from rounding, and dims whose sizes are no multiple of three, so that shards are uneven. A result is sharded
if the pieces in rank order are the global one, whatever their lengths. A dim shorter than the axis is not cut.
An integer operand is an index if there are floating ones, and no pending sum.
``refute_on_grid`` tries one claim on a mesh of several axes.
Source: semantics section 7, rulebook.md "the oracle".
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from shardwise.types.placement import P, PerMeshAxisSpmdType, R, Shard
from shardwise.types.tensor_type import TensorType

from .oracle import Op, Tensors, addends, gradients, leaf_of, tensors_in
from .reassemble import Grid, Unreadable, deal, reassemble
from .rounding import close, coarsest, total

Placements = tuple[PerMeshAxisSpmdType, ...]
Answer = tuple[PerMeshAxisSpmdType | None, ...] | str
Ask = Callable[[Op, Tensors, Placements], Answer]
FAILURES = (RuntimeError, LookupError, ValueError, TypeError, AssertionError, ArithmeticError)
"""What an operator raises when it cannot run on its operands."""
_TO_BE_SURE = 6
"""Sets of values on which a fact must hold before the book is blamed for refusing it."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Operands with these placements give results with those."""

    operands: Placements
    results: Placements

    def __str__(self) -> str:
        return f"{', '.join(map(repr, self.operands))} -> {', '.join(map(repr, self.results))}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A claim along an axis of ``size`` ranks and what refutes it, or a truth and why the book refuses it."""

    fact: Fact
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{self.fact} over {self.size} ranks: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """How a book compares with the numbers.

    ``wrong``    claims that the numbers refute. ``missing``: truths that the book refuses, with its reason.
    ``covered``  how many placements of the operands have a true fact and a true claim.
    """

    wrong: tuple[Mismatch, ...]
    missing: tuple[Mismatch, ...]
    covered: int


def true_placements(fn: Op, tensors: Sequence[torch.Tensor], *, size: int = 2, value_sets: int = 2) -> set[Fact]:
    """Every fact about ``fn`` that holds on the given values and on ``value_sets - 1`` other ones."""
    truth = Truth(fn, tensors, size=size, value_sets=value_sets)
    return {fact for operands in truth.cuts() for fact in truth.facts(operands)}


def check_book(
    fn: Op,
    tensors: Sequence[torch.Tensor],
    ask: Ask,
    *,
    sizes: Sequence[int] = (2, 3),
    value_sets: int = 2,
    others: Tensors | None = None,
) -> Report:
    """What a book gets wrong about ``fn``, and what it misses.

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
    """Claims about these operands that some rank's book makes and the numbers refute."""
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
    """Why the book refuses these operands on the first rank, which has the longest shards; None if it does not."""
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
    leaves, outs = _run(fn, [leaf_of(value) for value in tensors])
    try:
        ranks = [_run(fn, [leaf_of(pieces[rank]) for pieces in dealt]) for rank in range(len(grid.coordinates))]
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


class Truth:
    """What the numbers say about one function along an axis of ``size`` ranks."""

    def __init__(
        self,
        fn: Op,
        tensors: Sequence[torch.Tensor],
        *,
        size: int = 2,
        value_sets: int = 2,
        others: Tensors | None = None,
    ) -> None:
        """``others``: the second set of values, if the operator's domain is one that shuffled elements may leave."""
        self.fn = fn
        self.size = size
        made = [_others(tensors, seed) for seed in range(1, value_sets)] if others is None else [others]
        self.values = [tuple(tensors), *made]
        self.wholes = [_run(fn, [leaf_of(value) for value in values]) for values in self.values]
        self._trials = functools.cache(self._trials_of)

    def cuts(self) -> list[Placements]:
        """All placements that the operands can have."""
        # An integer among floating operands is an index: one that is out of range may do more than fail.
        numbers = not any(tensor.is_floating_point() or tensor.is_complex() for tensor in self.values[0])
        return list(itertools.product(*[list(_options(tensor, self.size, numbers)) for tensor in self.values[0]]))

    def locals(self, operands: Placements) -> list[Tensors]:
        """The local tensors of the first and of the last rank, without gradients."""
        dealt = _deal_all(self.values[0], operands, self.size, 0)
        return [tuple(tensor.detach() for tensor in dealt[rank]) for rank in (0, -1)]

    def facts(self, operands: Placements) -> set[Fact]:
        """All that is true of operands with these placements."""
        trials = self._trials(operands)
        if any(trial.failure for trial in trials):
            return set()
        choices = [[place for place in _places(out) if self._holds(trials, at, place)] for at, out in self._outputs()]
        facts = (Fact(operands, results) for results in itertools.product(*choices))
        return {fact for fact in facts if not any(trial.refute_backward(fact.results) for trial in trials)}

    def refute(self, operands: Placements, claim: Sequence[PerMeshAxisSpmdType | None]) -> str | None:
        """Why it is not true that operands with these placements give results with those; None: it is true."""
        trials = self._trials(operands)
        for trial in trials:
            if trial.failure:
                return trial.failure
        if len(claim) != len(self.wholes[0][1]):
            return f"{len(claim)} claims for {len(self.wholes[0][1])} results"
        for trial in trials:
            for at, place in enumerate(claim):
                reason = None if place is None else trial.refute(at, place)
                if reason:
                    return reason
            if all(place is not None for place in claim) and (reason := trial.refute_backward(claim)):
                return reason
        return None

    def failure(self, operands: Placements) -> str:
        """Why the operator cannot run on the ranks' parts; empty if it can."""
        return next((trial.failure for trial in self._trials(operands) if trial.failure), "")

    def first_rank(self, operands: Placements) -> Tensors:
        """What the first rank computes."""
        return self._trials(operands)[0].ranks[0][1]

    def refute_forward(self, operands: Placements, claim: Sequence[PerMeshAxisSpmdType | None]) -> str | None:
        """Why operands with these placements do not give these results, whatever the gradients; None: they do."""
        for trial in self._trials(operands):
            for at, place in enumerate(claim):
                reason = None if place is None else trial.refute(at, place)
                if reason:
                    return reason
        return None

    def spoken(self, answer: Answer) -> Answer:
        """A book's answer; where it says nothing of a result without elements, anything is true of that."""
        outs = self.wholes[0][1]
        if isinstance(answer, str) or len(answer) != len(outs):
            return answer
        return tuple(R if place is None and not out.numel() else place for place, out in zip(answer, outs, strict=True))

    def is_accident(self, fact: Fact) -> bool:
        """True if there is nothing in the results, or nothing that depends on the values and so proves something about
        shards that are combined."""
        if not any(out.numel() for out in self.wholes[0][1]):
            return True
        kept = all(isinstance(place, Shard) for place in fact.results) or set(fact.operands) == {R}
        if kept and P not in fact.operands:
            return False
        first, *others = [outs for _, outs in self.wholes]
        return all(close(a, b) for outs in others for a, b in zip(first, outs, strict=True))

    def _outputs(self) -> list[tuple[int, torch.Tensor]]:
        return list(enumerate(self.wholes[0][1]))

    @staticmethod
    def _holds(trials: Sequence[_Trial], at: int, place: PerMeshAxisSpmdType) -> bool:
        return not any(trial.refute(at, place) for trial in trials)

    def _trials_of(self, operands: Placements) -> list[_Trial]:
        trials = []
        for seed, (values, whole) in enumerate(zip(self.values, self.wholes, strict=True)):
            trials.append(_Trial(self.fn, values, whole, operands, self.size, seed))
            if trials[-1].failure:
                break
        return trials


class _Trial:
    """One run: operands dealt out in one way, with one set of values."""

    def __init__(
        self,
        fn: Op,
        values: Tensors,
        whole: tuple[Tensors, Tensors],
        operands: Placements,
        size: int,
        seed: int,
    ) -> None:
        self.operands = operands
        self.size = size
        self.seed = seed
        self.whole = whole
        self.ranks: list[tuple[Tensors, Tensors]] = []
        self.failure = ""
        self.rough = coarsest((*values, *whole[1]))
        try:
            self.ranks = [_run(fn, local) for local in _deal_all(values, operands, size, seed)]
        except FAILURES as error:
            self.failure = f"the operator fails on the ranks' parts: {error}"

    def refute(self, at: int, place: PerMeshAxisSpmdType) -> str | None:
        """Why result ``at`` is not ``place``; None if it is."""
        pieces = [outs[at].detach() for _, outs in self.ranks if at < len(outs)]
        if len(pieces) < self.size:
            return f"result {at} is missing on some rank"
        return _misread(pieces, place, self.whole[1][at].detach(), f"result {at}", rough=self.rough)

    def refute_backward(self, results: Sequence[PerMeshAxisSpmdType | None]) -> str | None:
        """Why the gradients are not what the duals of operands and results say; None if they are."""
        leaves, outs = self.whole
        sent = [at for at, out in enumerate(outs) if out.requires_grad]
        if not sent or not any(leaf.requires_grad for leaf in leaves):
            return None
        generator = torch.Generator().manual_seed(self.seed + 104729)
        cotangents = [torch.randn(outs[at].shape, dtype=outs[at].dtype, generator=generator) for at in sent]
        duals = [_dual(results[at]) for at in sent]
        dealt = [
            torch.split(cotangent, [local[at].shape[dual.dim] for _, local in self.ranks], dual.dim)
            if isinstance(dual, Shard)
            else _deal(cotangent, dual, self.size, generator)
            for at, cotangent, dual in zip(sent, cotangents, duals, strict=True)
        ]
        try:
            wanted = gradients(leaves, outs, cotangents)
        except FAILURES:
            return None  # the operator has no derivative
        if any(not outs[at].requires_grad for _, outs in self.ranks for at in sent):
            return "some rank's result has no gradient"
        try:
            found = [
                gradients(local, outs, [part[rank] for part in dealt]) for rank, (local, outs) in enumerate(self.ranks)
            ]
        except FAILURES as error:
            return f"the backward pass fails on the ranks' parts: {error}"
        for at, place in enumerate(self.operands):
            whole, pieces = wanted[at], [each[at] for each in found]
            if whole is not None:
                own = [piece for piece in pieces if piece is not None]
                reason = _misread(own, _dual(place), whole, f"the gradient of operand {at}", rough=self.rough)
                if reason:
                    return reason
        return None


def _run(fn: Op, leaves: Sequence[torch.Tensor]) -> tuple[Tensors, Tensors]:
    return tuple(leaves), tensors_in(fn(*leaves))


def _options(tensor: torch.Tensor, size: int, numbers: bool) -> Iterator[PerMeshAxisSpmdType]:
    """The placements that an operand can have; ``numbers``: an integer tensor may be a pending sum."""
    yield R
    for dim, extent in enumerate(tensor.shape):
        if extent >= size:
            yield Shard(dim)
    if tensor.is_floating_point() or tensor.is_complex() or (numbers and tensor.dtype is not torch.bool):
        yield P


def _places(result: torch.Tensor) -> Iterator[PerMeshAxisSpmdType]:
    """The placements that a result can have."""
    yield R
    for dim in range(result.ndim):
        yield Shard(dim)
    if result.dtype is not torch.bool:  # a truth value is no pending sum
        yield P


def _dual(place: PerMeshAxisSpmdType | None) -> PerMeshAxisSpmdType:
    assert place is not None, "every result that takes part in the backward pass has a claim"
    return place.backward_type()


def _deal_all(values: Tensors, places: Placements, size: int, seed: int) -> list[Tensors]:
    """Per rank, the local tensors of all operands."""
    # Its own stream: parts drawn like the values would be in proportion to them, which proves too little.
    generator = torch.Generator().manual_seed(seed + 7919)
    dealt = [_deal(value, place, size, generator) for value, place in zip(values, places, strict=True)]
    return [tuple(leaf_of(pieces[rank]) for pieces in dealt) for rank in range(size)]


def _deal(
    value: torch.Tensor, place: PerMeshAxisSpmdType, size: int, generator: torch.Generator
) -> Sequence[torch.Tensor]:
    """The ranks' local tensors of ``value``; the first shards are the longer ones."""
    if isinstance(place, Shard):
        return torch.tensor_split(value, size, place.dim)
    return addends(value, size, generator) if place is P else [value] * size


def _misread(
    pieces: Sequence[torch.Tensor],
    place: PerMeshAxisSpmdType,
    whole: torch.Tensor,
    what: str,
    *,
    rough: torch.dtype | None = None,
) -> str | None:
    """Why local tensors that are put together as ``place`` says are not ``whole``; None if they are."""
    if place is P and whole.dtype is torch.bool:
        return f"{what} is a truth value, which is no pending sum"
    if place is R:
        apart = next((rank for rank, piece in enumerate(pieces) if not close(piece, whole, rough=rough)), None)
        return None if apart is None else f"{what} on rank {apart} is not the global one"
    if place is P:
        if any(piece.shape != whole.shape for piece in pieces):
            return f"{what} has another shape on some rank than globally"
        return None if close(total(pieces), whole, rough=rough) else f"{what} does not sum up to the global one"
    assert isinstance(place, Shard), "a result is R, P or S(i)"
    shapes = {(*piece.shape[: place.dim], *piece.shape[place.dim + 1 :]) for piece in pieces}
    if len(shapes) != 1 or any(piece.ndim <= place.dim for piece in pieces):
        return f"the pieces of {what} do not fit together along dim {place.dim}"
    if close(torch.cat(list(pieces), place.dim), whole, rough=rough):
        return None
    return f"the pieces of {what} along dim {place.dim} are not the global one"


def _others(tensors: Sequence[torch.Tensor], seed: int) -> Tensors:
    """Other values from the same domains: every dim in another order, floating values scaled by a common factor.

    Dims of one size have the same order, so that a symmetric matrix stays one and a diagonal stays on its place.
    """
    generator = torch.Generator().manual_seed(seed)
    orders: dict[int, torch.Tensor] = {}

    def other(tensor: torch.Tensor) -> torch.Tensor:
        made = tensor.detach()
        for dim, size in enumerate(tensor.shape):
            if size not in orders:
                orders[size] = torch.randperm(size, generator=generator)
            made = made.index_select(dim, orders[size])
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return made.clone()
        return made * (1 - 0.25 * float(torch.rand((), generator=generator)))

    return tuple(other(tensor) for tensor in tensors)
