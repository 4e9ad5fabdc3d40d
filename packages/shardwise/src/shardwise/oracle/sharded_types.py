"""What is true of an operator's shardings? Runs it on every rank's part, along one mesh axis, in one process.

The operands' global values are dealt out as their placements say, the operator runs once per rank on the local tensors,
and a *fact* is true if the local results, put together as it says, are the operator of the global values; and if the
gradients computed per rank from a cotangent dealt out at the results' duals, put together at the operands' duals, are
the gradients on the global values (R and P are each other's dual, S(i) is its own).

A result is sharded if the pieces in rank order are the global one, whatever their lengths. A dim shorter than the axis
is not cut. An integer operand is an index if there are floating ones, and no pending sum.
Source: docs/semantics.md section 7, Law 7.1.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from shardwise.interop.tensors.containers import tensors_in
from shardwise.types.placement import AVG, MAX, NORM, P, PerMeshAxisSpmdType, R, Shard

from .local_types import Op, Tensors, addends, gradients, leaf_of
from .rounding import close, coarsest, total

Placements = tuple[PerMeshAxisSpmdType, ...]
Answer = tuple[PerMeshAxisSpmdType | None, ...] | str
"""What a ruleset says of the results: a placement of each, None where it claims nothing; or why it refuses."""
FAILURES = (RuntimeError, LookupError, ValueError, TypeError, AssertionError, ArithmeticError)
"""What an operator raises when it cannot run on its operands."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Operands with these placements give results with those."""

    operands: Placements
    results: Placements

    def __str__(self) -> str:
        return f"{', '.join(map(repr, self.operands))} -> {', '.join(map(repr, self.results))}"


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
        self.wholes = [run(fn, [leaf_of(value) for value in values]) for values in self.values]
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
        """A ruleset's answer; where it says nothing of a result without elements, anything is true of that."""
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
            self.ranks = [run(fn, local) for local in _deal_all(values, operands, size, seed)]
        except FAILURES as error:
            self.failure = f"the operator fails on the ranks' parts: {error}"

    @property
    def is_uneven(self) -> bool:
        """Some operand is dealt out in shards of different lengths."""
        shapes = [[tuple(leaf.shape) for leaf in leaves] for leaves, _ in self.ranks]
        return any(rank != shapes[0] for rank in shapes)

    def refute(self, at: int, place: PerMeshAxisSpmdType) -> str | None:
        """Why result ``at`` is not ``place``; None if it is."""
        pieces = [outs[at].detach() for _, outs in self.ranks if at < len(outs)]
        if len(pieces) < self.size:
            return f"result {at} is missing on some rank"
        if place.reduction is AVG and self.is_uneven:
            return None  # a pending average is claimed of shards of one length
        return _misread(pieces, place, self.whole[1][at].detach(), f"result {at}", rough=self.rough)

    def refute_backward(self, results: Sequence[PerMeshAxisSpmdType | None]) -> str | None:
        """Why the gradients are not what the duals of operands and results say; None if they are."""
        leaves, outs = self.whole
        sent = [at for at, out in enumerate(outs) if out.requires_grad]
        if not sent or not any(leaf.requires_grad for leaf in leaves):
            return None
        generator = torch.Generator().manual_seed(self.seed + 104729)
        cotangents = [torch.randn(outs[at].shape, dtype=outs[at].dtype, generator=generator) for at in sent]
        if any(place is not None and (place.is_extremum or place.reduction is NORM) for place in results):
            return None  # no gradient flows through what is pending there, or none that a rank could be dealt
        duals = [_dual(results[at]) for at in sent]
        # Of a pending average of n addends each gets one n-th of the gradient.
        shares = [self.size if (place := results[at]) is not None and place.reduction is AVG else 1 for at in sent]
        if self.is_uneven and max(shares, default=1) > 1:
            return None
        shared = [cotangent / share for cotangent, share in zip(cotangents, shares, strict=True)]
        dealt = [
            torch.split(cotangent, [local[at].shape[dual.dim] for _, local in self.ranks], dual.dim)
            if isinstance(dual, Shard)
            else _deal(cotangent, dual, self.size, generator)
            for at, cotangent, dual in zip(sent, shared, duals, strict=True)
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


def run(fn: Op, leaves: Sequence[torch.Tensor]) -> tuple[Tensors, Tensors]:
    """The operands and the results."""
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
    return addends(value, size, generator) if place.is_pending_sum("the oracle") else [value] * size


def _misread(
    pieces: Sequence[torch.Tensor],
    place: PerMeshAxisSpmdType,
    whole: torch.Tensor,
    what: str,
    *,
    rough: torch.dtype | None = None,
) -> str | None:
    """Why local tensors that are put together as ``place`` says are not ``whole``; None if they are."""
    if place.is_extremum:
        if any(piece.shape != whole.shape for piece in pieces):
            return f"{what} has another shape on some rank than globally"
        stacked = torch.stack([piece.to(torch.uint8) if piece.dtype is torch.bool else piece for piece in pieces])
        found = (stacked.amax(0) if place.reduction is MAX else stacked.amin(0)).to(whole.dtype)
        return None if close(found, whole, rough=rough) else f"{what} has not the global one's {place.reduction}"
    if place.reduction is NORM:
        found = torch.stack([*pieces]).square().sum(0).sqrt()
        return None if close(found, whole, rough=rough) else f"{what} is not the norm of the ranks' norms"
    if place.reduction is AVG:
        return _misread([piece / len(pieces) for piece in pieces], P, whole, what, rough=rough)
    if place.is_partial and whole.dtype is torch.bool:
        return f"{what} is a truth value, which is no pending sum"
    if place is R:
        apart = next((rank for rank, piece in enumerate(pieces) if not close(piece, whole, rough=rough)), None)
        return None if apart is None else f"{what} on rank {apart} is not the global one"
    if place.is_pending_sum("the oracle"):
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
