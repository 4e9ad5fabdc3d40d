"""Numbers that a function has from outside and that may depend on the rank: what are they on the other ranks?

A program asks for its rank once and keeps what follows from it: the rank itself, the first row of this rank's part. In
this process they are those of one rank. What is named after a rank is the simulated one, what is named after a start
or an end is guessed as rank times length; where a guess is not sure, nothing is said against a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import torch

from shardwise.interop.torch_compat import tree_leaves

from .function_runs import FunctionObservation, FunctionRuns
from .simulated_ranks.identity import KeptNumber, names_read

Guess = Callable[[int], Mapping[KeptNumber, int]]
"""What numbers are on a rank."""

_STARTS = {"start", "begin", "offset", "first", "lower", "low", "lo"}
_ENDS = {"end", "stop", "last", "upper", "high", "hi"}
_DOUBTFUL = {
    "shard",
    "part",
    "local",
    "index",
    "idx",
    "id",
    "slot",
    "pos",
    "position",
    "stage",
    "chunk",
    "own",
    "my",
    "me",
}
_HARMLESS = {
    "dim",
    "axis",
    "scatter",
    "gather",
    "size",
    "ignore",
    "pad",
    "num",
    "dims",
    "count",
    "length",
    "len",
    "seed",
}
_MASKS = {"mask", "masked", "local", "own", "inside", "outside", "valid"}
_ORDERED = ("gather", "scatter", "all_to_all", "send", "recv")
"""Words in the names of collectives in which it matters which rank is which."""


def words_of(name: str) -> set[str]:
    """``vocab_start_index`` -> vocab, start, index."""
    return set(re.split(r"[_\W]+", name.lower()))


def is_rank_name(name: str) -> bool:
    """A number of this name is a rank, as far as one can tell."""
    return any(word.endswith("rank") for word in words_of(name))


class RankNumbers:
    """The numbers of the function that ``runs`` runs on ``ranks``, those of one group."""

    def __init__(self, runs: FunctionRuns, ranks: Sequence[int]) -> None:
        self.runs, self.ranks = runs, ranks
        self.own = [one for one in runs.numbers if is_rank_name(one.name)]
        rest = [one for one in runs.numbers if one not in self.own and not words_of(one.name) & _HARMLESS]
        self.starts = [one for one in rest if words_of(one.name) & _STARTS]
        self.ends = [one for one in rest if words_of(one.name) & _ENDS and one not in self.starts]
        placed = [*self.starts, *self.ends]
        self.doubtful = [one for one in rest if words_of(one.name) & _DOUBTFUL and one not in placed]

    def guesses(self) -> list[Guess]:
        """What the numbers may be on the ranks, the likeliest first."""
        numberings: list[Callable[[int], int]] = [self.ranks.index]
        if self.own and list(self.ranks) != list(range(len(self.ranks))):
            numberings.append(lambda rank: rank)
        steps: list[int | None] = [*self._steps(), None] if self.starts or self.ends else [None]
        return [self._guess(numbering, step) for numbering in numberings for step in steps]

    def named(self) -> str:
        """Which number may depend on the rank; empty if there is none."""
        numbers = (*self.own, *self.starts, *self.ends, *self.doubtful)
        return f"{numbers[0].name} may differ between ranks" if numbers else ""

    def unseen(self, first: FunctionObservation) -> str:
        """Why the function may depend on the rank in a way that no guess covers; empty if it cannot matter."""
        if (self.starts or self.ends) and not self._is_sure():
            return f"{(*self.starts, *self.ends)[0].name} may differ between ranks"
        if self.doubtful:
            return f"{self.doubtful[0].name} may differ between ranks"
        for name, value in zip(self.runs.argument_names(), self.runs.args, strict=True):
            for leaf in tree_leaves(value):
                if isinstance(leaf, torch.Tensor) and (leaf.dtype is torch.bool or _is_local_mask(name, leaf)):
                    return f"{name} may differ between ranks"
        if first.asked or not any(word in one.name for one in first.issued for word in _ORDERED):
            return ""
        told = {one.name for one in self.own}
        for function in self.runs.functions:
            for name in names_read(function.__code__) - told:
                if is_rank_name(name) and "get" not in words_of(name):
                    return f"{name} may differ between ranks"
        return ""

    def _guess(self, numbering: Callable[[int], int], step: int | None) -> Guess:
        def numbers(rank: int) -> dict[KeptNumber, int]:
            found = {one: numbering(rank) for one in self.own}
            if step is not None:
                at = self.ranks.index(rank)
                found |= dict.fromkeys(self.starts, at * step)
                found |= dict.fromkeys(self.ends, (at + 1) * step)
            return found

        return numbers

    def _is_sure(self) -> bool:
        return bool(self.starts and (self.ends or self._at() > 0))

    def _at(self) -> int:
        return self.ranks.index(self.runs.rank)

    def _steps(self) -> list[int]:
        """How much of something a rank has."""
        if self.starts and self.ends:
            return [self.ends[0].value - self.starts[0].value]
        if self.starts and self._at() > 0:
            return [self.starts[0].value // self._at()]
        if self.ends:
            return [self.ends[0].value // (self._at() + 1)]
        shapes = [self.runs.shape(at) for at in self.runs.operands]
        return list(dict.fromkeys(n for shape in shapes for n in (*shape[-1:], *shape[:1])))


def _is_local_mask(name: str, x: torch.Tensor) -> bool:
    return not x.is_floating_point() and bool(words_of(name) & _MASKS)
