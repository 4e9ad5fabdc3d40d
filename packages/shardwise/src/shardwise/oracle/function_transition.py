"""Which transition of types is an autograd function, and is its backward the partner of its forward? Numbers decide.

Along the axis of its collectives, of size n, forward takes lists of local operands x_r to lists of results y_r, with
the derivative J over all ranks at once, and backward takes lists of gradients g_r to lists h_r. What types promise is

    a result that is R, V: any g;             h is what J says: w = 1
    a result that is P:    g equal;           w = 1
    a result that is I:    g equal;           counted once and not n times: w = 1/n
    an operand V, P:       <h_r, dx_r> summed over r is w <g, J dx>, for any dx
    an operand R:          the same for equal dx: the h_r are addends of the gradient
    an operand I:          the h_r are equal, and each is the whole gradient

and R and I are equal lists, and of P only the sum matters. J is taken by differences of forward in float64.
Source: docs/semantics.md sections 2, 4 and 5.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import torch

from shardwise.mesh.axis import MeshAxis

from .function_runs import FunctionObservation, FunctionRuns, NotRun
from .function_typings import FunctionTransition, Typing
from .public_transitions import PublicTransition, forwards_like
from .rank_numbers import Guess, RankNumbers
from .simulated_ranks.replay import LIMIT
from .trial_values import DIFFERENT, EQUAL, all_equal, close, distance, each_rank, random_values, trial_values

PRECISIONS = ((1e-4, 1e-4), (2e-2, 5e-3))
"""How far operands are moved, and which differences relative to what is compared are then rounding, or the curvature of
forward: for functions that compute in double precision, and for those that use float32 inside.
"""
NOT_SMOOTH = "forward has no derivative there"
_TINY = 1e-12
_MOST_OPERANDS = 4


def transition_of(runs: FunctionRuns, letters: Callable[[MeshAxis], Sequence[str]]) -> FunctionTransition:
    """What the call is.

    ``letters``  per operand, the placements that it may have along an axis; ``RIVP`` if nothing is known of it.
    """
    try:
        first = scout(runs)
        axis = only_axis(first)
        if axis is None:
            return FunctionTransition(unclear=RankNumbers(runs, [runs.rank]).named())
        return _Search(runs, first, axis).found(letters(axis))
    except NotRun as why:
        return FunctionTransition(unclear=str(why))


def scout(runs: FunctionRuns, *, backward: bool = True) -> FunctionObservation:
    """One run, to see what is issued. Errors: NotRun."""
    sent = each_rank if backward else None
    if not runs.operands or len(runs.operands) > _MOST_OPERANDS:
        raise NotRun(f"it has {len(runs.operands)} floating-point operands")
    try:
        return runs.observe(functools.partial(trial_values, runs, "V" * len(runs.operands)), sent)
    except NotRun:
        runs.dtype = None
        return runs.observe(functools.partial(trial_values, runs, "V" * len(runs.operands)), sent)


def only_axis(first: FunctionObservation) -> MeshAxis | None:
    """The axis that all collectives run over, without any that in which a rank is asked for; None without either.

    Errors: NotRun for several.
    """
    axes = {one.axis for one in first.issued if one.axis.size() > 1}
    axes = axes or {axis for axis in first.asked if axis.size() > 1}
    if len(axes) > 1:
        raise NotRun("it communicates over several axes")
    return next(iter(axes), None)


def forward_letters(runs: FunctionRuns, axis: MeshAxis, known: Sequence[str]) -> list[str] | None:
    """The placements that forward alone admits for each result, if operands are ``known``; None if nothing is known."""
    try:
        return _Search(runs, scout(runs, backward=False), axis).forward_letters(known)
    except NotRun:
        return None


class _Search:
    """The typings of one function along ``axis``, by what it does to values that are equal or differ."""

    def __init__(self, runs: FunctionRuns, first: FunctionObservation, axis: MeshAxis) -> None:
        self.runs, self.first, self.axis = runs, first, axis
        self.size = axis.size()
        self.results = len(first.points[0].results)
        self.numbers = RankNumbers(runs, self._ranks())
        self.step, self.near = PRECISIONS[0]
        self.doubts: list[str] = []
        self.ways: set[Typing] = set()
        self.scaled: dict[float, set[Typing]] = {}
        self.factors = (1.0, float(self.size), 1.0 / self.size)

    def found(self, known: Sequence[str]) -> FunctionTransition:
        if self.size > LIMIT:
            raise NotRun(f"its group has {self.size} ranks")
        if any(one.is_dropped for one in self.first.issued):
            return self._result("")
        if any(one.is_unfinished for one in self.first.issued):
            raise NotRun("it hands an unfinished collective on")
        doubt = self.numbers.unseen(self.first)
        precisions = PRECISIONS if self._is_double() else PRECISIONS[1:]
        for self.step, self.near in precisions:
            self.doubts, self.scaled = [], {}
            for guess, kinds in itertools.product(self.numbers.guesses(), self._assignments(known)):
                self._along(kinds, known, guess)
                if self.ways:
                    return self._result("")
            if NOT_SMOOTH not in self.doubts:
                break
        return self._result(doubt or "; ".join(self.doubts[:1]))

    def _is_double(self) -> bool:
        """Results of less precision move by roundings of their own, and as much for a step of twice the length."""
        return all(one.dtype is torch.float64 for point in self.first.points for one in point.results)

    def forward_letters(self, known: Sequence[str]) -> list[str]:
        """Errors: NotRun where forward cannot be run, or may depend on the rank unseen."""
        if self.size > LIMIT or self.numbers.unseen(self.first):
            raise NotRun("forward may depend on the rank unseen")
        kinds, guess = self._assignments(known)[0], self.numbers.guesses()[0]
        base = self._observe(functools.partial(trial_values, self.runs, kinds), None, guess)
        letters = [
            "RIVP" if all_equal([point.results[k] for point in base.points]) else "VP" for k in range(self.results)
        ]
        for i, one in enumerate(known):
            if one == "P":
                moved = self._moved(kinds, i, base, guess)
                letters = ["".join(letter for letter in each if letter in moved) for each in letters]
        return letters

    def _result(self, unclear: str) -> FunctionTransition:
        scaled = {factor: frozenset(ways) for factor, ways in self.scaled.items()}
        first = self.first
        like, back = self._named()
        dropped = next((one for one in first.issued if one.is_dropped), None)
        return FunctionTransition(
            self.axis, frozenset(self.ways), scaled, first.forward, first.backward, unclear, like, back, dropped
        )

    def _named(self) -> tuple[tuple[PublicTransition, ...], tuple[PublicTransition, ...]]:
        """The public calls that forward of one tensor is, and those that backward is."""
        if len(self.runs.operands) != 1 or self.results != 1:
            return (), ()
        values = functools.partial(trial_values, self.runs, "V")
        try:
            seen = self._observe(values, each_rank, self.numbers.guesses()[0])
        except NotRun:
            return (), ()
        ranks = self._ranks()
        operands = [values(rank)[0] for rank in ranks]
        results = [point.results[0] for point in seen.points]
        sent = [each_rank(rank, point.results)[0] for rank, point in zip(ranks, seen.points, strict=True)]
        back = [point.gradients[0] for point in seen.points if point.gradients and point.gradients[0] is not None]
        like = tuple(forwards_like(operands, results, close))
        return like, tuple(forwards_like(sent, back, close)) if len(back) == len(sent) else ()

    def _assignments(self, known: Sequence[str]) -> list[str]:
        """Whether operands are equal or differ, as far as it is not known: all that differ first, then all equal.

        What a collective of forward takes is not equal on all ranks, unless one knows that it is.
        """
        kinds = [
            [kind for kind, letters in (("V", DIFFERENT), ("R", EQUAL)) if set(letters) & set(one)] for one in known
        ]
        every = ["".join(one) for one in itertools.product(*kinds)]
        unlikely = "R" * len(known) if self.first.forward and set(known) == {"RIVP"} else ""
        return [one for one in every if one != unlikely]

    def _ranks(self) -> list[int]:
        base = self.runs.rank - sum((self.runs.rank // s) % n * s for n, s in self.axis.layout.atoms)
        return [base + offset for offset in self.axis.layout.ranks()]

    def _observe(self, values: object, cotangents: object, guess: Guess) -> FunctionObservation:
        seen = self.runs.observe(values, cotangents, guess, self._ranks())  # type: ignore[arg-type]
        if len(seen.points) != self.size or len(seen.points[0].results) != self.results:
            raise NotRun("it does something else for other values")
        return seen

    def _along(self, kinds: str, known: Sequence[str], guess: Guess) -> None:
        """Add the typings for operands of these kinds."""
        values = functools.partial(trial_values, self.runs, kinds)
        try:
            base = self._observe(values, None, guess)
            equal = [all_equal([point.results[k] for point in base.points]) for k in range(self.results)]
            allowed: dict[tuple[int, int], dict[float, set[str]]] = {}
            slopes = [self._slopes(kinds, i, guess) for i in range(len(kinds))]
            for k in range(self.results):
                for mode in ("each", "same"):
                    cotangents = functools.partial(self._cotangents, k, mode)
                    back = self._observe(values, cotangents, guess)
                    for i, kind in enumerate(kinds):
                        pairs = allowed.setdefault((i, k), {factor: set() for factor in self.factors})
                        self._judge(i, k, kind, mode, equal[k], back, slopes[i], cotangents, base, pairs)
            moved = {
                i: self._moved(kinds, i, base, guess)
                for i, kind in enumerate(kinds)
                if "P" in known[i] and kind in DIFFERENT
            }
            ways = {factor: self._combined(kinds, known, equal, allowed, moved, factor) for factor in self.factors}
            if not ways[1.0] and not self.doubts and not self._is_smooth(kinds, slopes, guess):
                self.doubts.append(NOT_SMOOTH)
        except NotRun as why:
            self.doubts.append(str(why))
            return
        self.ways |= ways.pop(1.0)
        for factor, typings in ways.items():
            if typings:
                self.scaled.setdefault(factor, set()).update(typings)

    def _cotangents(self, k: int, mode: str, rank: int, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A gradient of result ``k`` alone: every rank's own, or the same on all."""
        return [
            random_values(one.shape, 3, at, rank if mode == "each" else -1).to(one.dtype)
            if at == k
            else torch.zeros_like(one)
            for at, one in enumerate(results)
        ]

    def _direction(self, kinds: str, i: int, rank: int) -> torch.Tensor:
        return random_values(self.runs.shape(self.runs.operands[i]), 4, i, 0 if kinds[i] in EQUAL else rank + 1)

    def _slopes(self, kinds: str, i: int, guess: Guess, longer: float = 1.0) -> list[list[torch.Tensor]]:
        """By rank and result: how results change along a direction of operand ``i``."""
        step = longer * self.step

        def shifted(step: float) -> FunctionObservation:
            def values(rank: int) -> list[torch.Tensor]:
                given = trial_values(self.runs, kinds, rank)
                given[i] = given[i] + step * self._direction(kinds, i, rank)
                return given

            return self._observe(values, None, guess)

        return [
            [(a.double() - b.double()) / (2 * step) for a, b in zip(up.results, down.results, strict=True)]
            for up, down in zip(shifted(step).points, shifted(-step).points, strict=True)
        ]

    def _is_smooth(self, kinds: str, slopes: Sequence[list[list[torch.Tensor]]], guess: Guess) -> bool:
        """True if the slopes do not depend on the step, as those of a rounding would."""
        for i, fine in enumerate(slopes):
            coarse = self._slopes(kinds, i, guess, 2.0)
            scale = max((float(one.abs().max()) for rank in fine for one in rank if one.numel()), default=0.0)
            pairs = [(a, b) for x, y in zip(coarse, fine, strict=True) for a, b in zip(x, y, strict=True)]
            if max((distance(a, b) for a, b in pairs), default=0.0) > self.near * scale + _TINY:
                return False
        return True

    def _judge(
        self,
        i: int,
        k: int,
        kind: str,
        mode: str,
        equal: bool,
        back: FunctionObservation,
        slopes: list[list[torch.Tensor]],
        cotangents: object,
        base: FunctionObservation,
        pairs: dict[float, set[str]],
    ) -> None:
        """Add the pairs of letters of operand ``i`` and result ``k`` that the gradients admit, by factor."""
        results = ("VR" if equal else "V") if mode == "each" else ("IP" if equal else "P")
        operands = EQUAL if kind in EQUAL else DIFFERENT
        gradients = [point.gradients[i] if point.gradients else None for point in back.points]
        if all(gradient is None for gradient in gradients):  # by design, or detached: nothing is claimed
            for factor in self.factors:
                pairs[factor].update(a + b for a in operands for b in results)
            return
        shape = self.runs.shape(self.runs.operands[i])
        found = [torch.zeros(shape) if one is None else one for one in gradients]
        try:
            found = [one.sum_to_size(shape) if one.shape != shape else one for one in found]
        except RuntimeError:
            return  # autograd refuses it
        ranks = self._ranks()
        sent = [cotangents(rank, base.points[at].results) for at, rank in enumerate(ranks)]  # type: ignore[operator]
        kinds = "R" * i + kind
        along = [float((found[at].double() * self._direction(kinds, i, rank)).sum()) for at, rank in enumerate(ranks)]
        parts = [float((sent[at][k].double() * slopes[at][k]).sum()) for at in range(self.size)]
        size = max(sum(map(abs, along)), sum(map(abs, parts)))
        still = all(float(rank[k].abs().max() if rank[k].numel() else 0.0) <= _TINY for rank in slopes)
        if still and size > _TINY:
            self.doubts.append("backward passes a gradient on where forward does not change")
            return
        same = all_equal(found)
        for result in results:
            whole = sum(parts) / (self.size if result == "I" else 1)
            for operand in operands:
                if operand == "I" and not same:
                    continue
                reached = along[0] if operand == "I" else sum(along)
                for factor in self.factors:
                    bound = max(abs(reached), abs(factor * whole), self.near * size)
                    if abs(reached - factor * whole) <= self.near * bound + _TINY:
                        pairs[factor].add(operand + result)

    def _moved(self, kinds: str, i: int, base: FunctionObservation, guess: Guess) -> str:
        """The letters of results that a pending sum as operand ``i`` admits: it may be split over ranks in any way."""

        def values(rank: int) -> list[torch.Tensor]:
            given = trial_values(self.runs, kinds, rank)
            ranks = self._ranks()
            share = random_values(given[i].shape, 5, i)
            given[i] = given[i] + share * (1 if rank == ranks[0] else -1 if rank == ranks[-1] else 0)
            return given

        seen = self._observe(values, None, guess)
        letters = []
        for k in range(self.results):
            before, after = ([point.results[k] for point in one.points] for one in (base, seen))
            kept = all(close(a, b) for a, b in zip(before, after, strict=True))
            # Results of several sizes, as of an exchange of rows by counts, are no addends of anything.
            one_size = len({x.shape for x in (*before, *after)}) == 1
            summed = one_size and close(sum(before[1:], before[0]), sum(after[1:], after[0]))
            letters.append("VRI" if kept else "P" if summed else "")
        return "".join(sorted(set.intersection(*map(set, letters)))) if letters else ""

    def _combined(
        self,
        kinds: str,
        known: Sequence[str],
        equal: Sequence[bool],
        allowed: Mapping[tuple[int, int], Mapping[float, set[str]]],
        moved: Mapping[int, str],
        factor: float,
    ) -> set[Typing]:
        choices = [
            [a for a in (EQUAL if kind in EQUAL else DIFFERENT) if a in known[i]] for i, kind in enumerate(kinds)
        ]
        outcomes = ["RIVP" if one else "VP" for one in equal]
        found = set()
        for operands in itertools.product(*choices):
            results: list[list[str]] = []
            for k, letters in enumerate(outcomes):
                fits = [
                    letter
                    for letter in letters
                    if all(
                        operand + letter in allowed[i, k][factor] and (operand != "P" or letter in moved.get(i, ""))
                        for i, operand in enumerate(operands)
                    )
                ]
                if "P" not in operands:
                    fits = [letter for letter in fits if letter != "P"]  # nobody has said that it is to be summed
                if "RIVP" in known:
                    fits = [letter for letter in fits if self._is_usual(operands, letter)]
                results.append(fits)
            if all(results):
                # R and I claim most, then V; P is what a result is read as by whoever sums it.
                found.add(Typing("".join(operands), "".join(_preferred(fits) for fits in results)))
        return found

    def _is_usual(self, operands: Sequence[str], result: str) -> bool:
        """A transition that is meant in forward code, where nothing is known of the operands.

        The others have an expert gate; and an invariant value handed on is no reason for a collective in backward.
        """
        if result == "P":
            return False
        return result != "I" or not (set(operands) == {"R"} or (set(operands) == {"I"} and self.first.backward))


def _preferred(letters: Sequence[str]) -> str:
    """The letter that claims most; ``?`` where R and I cannot be told apart, as without a gradient."""
    if "R" in letters and "I" in letters:
        return "?"
    return letters[0]
