"""How much of a program a run has judged: what has a type, and what a verdict would have to rest on that has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .printing.limits import counted
from .printing.ranks import ranks_text
from .source_location import SourceLocation


@dataclass(frozen=True, slots=True)
class OwnData:
    """What a data parallel model is called with, or what meets what it has made, as targets do. That each rank has its
    own is assumed, unless something says so.

    ``what``      the argument: ``0 of DistributedDataParallel``, ``1 of cross_entropy``.
    ``location``  of the first call.
    ``groups``    the ranks, this one among them, that average the gradients: one group for each axis.
    ``said``      a type says it, as of the batches of a ``DistributedSampler``.
    ``digest``    of the values in all calls; empty if nobody compares them.
    ``alike``     the ranks on which the values are equal, where they have been compared.
    ``apart``     the ranks that a further run has found to have values of their own.
    ``of_operator``  it is no argument of a model.
    """

    what: str
    location: SourceLocation | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    said: bool = False
    digest: str = ""
    alike: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()
    of_operator: bool = False

    @property
    def is_assumed(self) -> bool:
        """Nothing has said that the values are each rank's own, nor has refuted it."""
        return not (self.said or self.alike or self.apart)


@dataclass(frozen=True, slots=True)
class UnjudgedGradients:
    """Of the gradients that a step takes, those of which nothing is known along an axis over which numbers go."""

    axis: str
    unknown: int
    taken: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many parameters of the modules that were called, and how many tensors that these were called with, have a
    type, of how many; and what no verdict can rest on.

    ``unjudged_axes``  axes over which numbers are exchanged that are judged by nothing: neither what is exchanged has a
                       type there, nor has a parameter.
    ``own_data``       what data parallel models are called with, and what without a type meets their results.
    ``unjudged_gradients``  gradients that steps take though nobody knows what they are.
    ``unjudged_losses``  losses that are computed from parameters or exchanges without a type, or of samples in an order
                         of each rank's own, a sentence each.
    ``says_types``     the program writes types itself, and does not leave all to wrappers and marks.
    ``refused_globally``  what global types refuse of a program that is clean with local ones, a sentence each.
    ``own_elements``  what is computed of single elements of shards, of which global types say nothing, a sentence each.
    ``own_reductions``  losses that are no mean of a rank's samples, on a scale that no type knows, a sentence each.
    ``constants_read``  the places where all that Python has read is made of constants alone, and equal on every rank.
    """

    typed_parameters: int = 0
    parameters: int = 0
    typed_inputs: int = 0
    inputs: int = 0
    unjudged_axes: tuple[str, ...] = ()
    own_data: tuple[OwnData, ...] = ()
    unjudged_gradients: tuple[UnjudgedGradients, ...] = ()
    unjudged_losses: tuple[str, ...] = ()
    says_types: bool = False
    refused_globally: tuple[str, ...] = ()
    own_elements: tuple[str, ...] = ()
    own_reductions: tuple[str, ...] = ()
    constants_read: tuple[str, ...] = ()

    @property
    def untyped(self) -> str:
        """``12 of 12 parameters and 1 of 3 inputs``; empty if everything has a type."""
        lost = {
            "parameter": (self.parameters - self.typed_parameters, self.parameters),
            "input": (self.inputs - self.typed_inputs, self.inputs),
        }
        return " and ".join(
            f"{count} of {total} {noun}{'' if total == 1 else 's'}" for noun, (count, total) in lost.items() if count
        )

    @property
    def unjudged(self) -> tuple[str, ...]:
        """What is not judged though the verdict depends on it, a sentence each; none if all of it is."""
        return tuple(self._unjudged())

    def _unjudged(self) -> Iterator[str]:
        if self.unjudged_axes:
            axes = " and ".join(self.unjudged_axes)
            yield f"what is exchanged over {axes}: no type says what it, or any parameter, is there"
        if self.unjudged_gradients:
            over: dict[str, list[str]] = {}
            for one in self.unjudged_gradients:
                over.setdefault(f"{one.unknown} of {counted(one.taken, 'parameter')}", []).append(one.axis)
            gradients = ", and of ".join(f"{count} over {' and '.join(axes)}" for count, axes in over.items())
            yield f"what steps take: nothing is known of the gradients of {gradients}"
        yield from self.unjudged_losses
        yield from self.own_reductions
        same = [one for one in self.own_data if one.alike]
        if same:
            args = " and ".join(dict.fromkeys(one.what for one in same))
            yield f"whether each rank has data of its own: argument {args} is equal on {ranks_text(same[0].alike)}"
        elif self.is_data_assumed:
            args = " and ".join(dict.fromkeys(one.what for one in self.own_data if one.is_assumed))
            yield f"whether each rank has data of its own: nothing says so of argument {args}"
        yield from self.own_elements
        for refused in self.refused_globally:
            yield f"what one device would compute, where --global finds that {refused}"

    @property
    def open_questions(self) -> tuple[str, ...]:
        """Why a run that came to its end without errors is inconclusive, a sentence each."""
        return self.unjudged or ("nothing was judged that depends on a parameter",)

    @property
    def is_data_assumed(self) -> bool:
        """That ranks have data of their own is neither said nor refuted."""
        return any(one.is_assumed for one in self.own_data) and not any(one.alike for one in self.own_data)

    @property
    def has_modules(self) -> bool:
        """Modules have been called."""
        return self.parameters + self.inputs > 0

    @property
    def has_types(self) -> bool:
        """Some parameter has one; where there are none, some input."""
        return self.typed_parameters > 0 if self.parameters else self.typed_inputs > 0


NOTHING = Coverage()
TEXTS = (
    "unjudged_axes",
    "unjudged_losses",
    "refused_globally",
    "own_elements",
    "own_reductions",
    "constants_read",
)
"""The fields that are texts, one or several."""


def of_ranks(coverages: Mapping[int, Coverage]) -> Coverage:
    """What several ranks have judged: the most that one of them calls, and what is open on any. Data that all ranks
    have handed in is no longer assumed to be their own: it is, or it is not.
    """
    if not coverages:
        return NOTHING
    most = max(coverages.values(), key=lambda one: (one.parameters, one.inputs))
    gradients = {
        (one.axis, one.unknown, one.taken): one for each in coverages.values() for one in each.unjudged_gradients
    }
    worst = {one.axis: one for one in sorted(gradients.values(), key=lambda one: one.unknown / one.taken)}

    def together(field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(said for each in coverages.values() for said in getattr(each, field)))

    return replace(
        most,
        unjudged_axes=together("unjudged_axes"),
        own_data=tuple(dict.fromkeys(_compared({rank: each.own_data for rank, each in coverages.items()}))),
        unjudged_gradients=tuple(worst.values()),
        unjudged_losses=together("unjudged_losses"),
        says_types=any(each.says_types for each in coverages.values()),
        own_elements=together("own_elements"),
        own_reductions=together("own_reductions"),
        constants_read=tuple(
            place for place in most.constants_read if all(place in one.constants_read for one in coverages.values())
        ),
    )


def _compared(data: Mapping[int, Iterable[OwnData]]) -> Iterator[OwnData]:
    """The arguments that are equal on several ranks, and those that no two ranks have to compare; of the others what
    the first rank says.
    """
    told: dict[object, dict[int, OwnData]] = {}
    for rank, some in data.items():
        for one in some:
            told.setdefault((one.what, one.location), {})[rank] = one
    for by_rank in told.values():
        for rank, one in by_rank.items():
            others = {other: by_rank[other] for group in one.groups for other in group if other in by_rank} | {
                rank: one
            }
            apart = others if one.digest and all(each.digest or each.said for each in others.values()) else {}
            alike = [other for other, each in others.items() if other != rank and each.digest == one.digest != ""]
            if alike:
                ranks = sorted(other for other, each in by_rank.items() if each.digest == one.digest)
                yield replace(one, alike=tuple(ranks), digest="", groups=(), said=False)
            elif not one.said and len(apart) < 2:
                # one that says it without a digest has other values: of a type, or one value everywhere
                yield replace(one, digest="", groups=())
            elif rank == min(by_rank):
                yield replace(one, digest="", apart=tuple(sorted(apart)) if len(apart) > 1 else ())
