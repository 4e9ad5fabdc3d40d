"""Parameters and gradients that nobody has typed: they lie as the parameter's initial values do."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Key, Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import Along, ObservedLayout, Way
from shardwise.oracle.reassemble import Grid, Unreadable
from shardwise.types.tensor_type import TensorType

from ..distance.difference import difference, rms_of
from ..distance.numbers import Against, NotCompared, ValueDisagreement
from ..distance.value_comparison import Entries, ValueComparison, Verdict
from ..records.naming import NAMELESS
from .alignment import AlignedParameter, Alignment, is_constant
from .held_parts import put_together, with_those_alike
from .local_training import AVERAGED, averaged_steps
from .repeated_layers import repeated_layer
from .shared_data import repeated_piece
from .shared_draws import drawn_alike

OF_PARAMETERS = ("parameter", "gradient", "left", "updated", "trained")
"""Kinds of records that lie as a parameter does. Where their type leaves out an axis they are replicas along it."""


class ObservedParameters:
    """Judges parameters and gradients of the ranks by the layouts that the parameters' initial values show.

    ``wrapped``  some module is in a wrapper that averages gradients.
    ``talking``  an optimizer's step issues collectives, which may sum what enters it.
    """

    def __init__(
        self,
        grid: Grid,
        ranks: Sequence[Entries],
        alone: Entries,
        values: ValueComparison,
        *,
        wrapped: bool = False,
        talking: bool = False,
    ) -> None:
        self._grid, self._ranks, self._alone, self._values = grid, ranks, alone, values
        self._talking = talking
        self._to_do = _TO_DO | {Way.MEAN: _SYNCHRONISED} if wrapped else _TO_DO
        self._alignment: Alignment | None = None
        self._lines: dict[tuple[str, str], list[SourceLocation | None]] = {}
        """Where the run on one rank has records of parameters, by their kind and name."""
        self._gradient_counts: dict[int, Counter[str]] = {}
        """By the id of a run."""
        for key in alone:
            if key.kind in OF_PARAMETERS and key.nth == 1:
                self._lines.setdefault((key.kind, key.name), []).append(key.location)

    @property
    def alignment(self) -> Alignment:
        """Where the parameters that enter an optimizer are found in the run on one rank."""
        if self._alignment is None:
            self._alignment = Alignment(self._grid, [_initial(run) for run in self._ranks], _initial(self._alone))
        return self._alignment

    def unexplained(self) -> list[str]:
        """The parameters whose initial values no layout explains, and which are no multiples either.

        Of buffers that an optimizer has of its own only if there are no others.
        """
        names = dict.fromkeys(name for run in self._ranks for name in _initial(run))
        lost = [name for name in names if not self.alignment.of(name) and name not in self.alignment.multiples]
        named = [name for name in lost if not name.startswith(NAMELESS)]
        return named if len(lost) < len(names) else lost

    @functools.cached_property
    def _drawn_alike(self) -> bool:
        return drawn_alike(self._ranks, self._alone)

    @functools.cached_property
    def _averaged_steps(self) -> frozenset[str]:
        """The parameters of which every rank's own step, and the mean of them all, is right."""
        return averaged_steps(self._ranks, self._alone, self.alignment, talking=self._talking)

    def judge(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], *, parted: bool) -> Verdict:
        """``parted``: only the ranks can be compared."""
        verdict = self._judge(key, first, pieces, parted=parted)
        own = key.kind == "gradient" and not isinstance(verdict, str) and key.name in self._averaged_steps
        return NotCompared(key, first.claim, AVERAGED) if own else verdict

    def _judge(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], *, parted: bool) -> Verdict:
        groups = self.alignment.of(key.name)
        if not groups or parted or (key.kind == "trained" and not self._as_often_trained(key.name, groups)):
            return self._replicas(key, first, pieces, groups)
        compared = False
        for group in groups:
            held = functools.partial(self._held, key, pieces)
            own = held(group)
            if len(own) < len(group.ranks):
                settled = self._settled(key, first, group, held)
                if settled is None:
                    missing = ", ".join(str(rank) for rank in group.ranks if rank not in own)
                    return NotCompared(key, first.claim, f"rank {missing} of those that hold it has none")
                own = settled
            verdict = self._of_group(key, first, own, group)
            if isinstance(verdict, ValueDisagreement):
                return verdict
            compared |= verdict == "equal"
        return "equal" if compared else NotCompared(key, first.claim, "the run on one rank does not have it")

    def judge_parts(self, key: Key, records: Mapping[int, Record], *, parted: bool) -> Verdict:
        """The same where some rank has only a part of what it holds, as of a gradient that others need the rest of."""
        first = records[min(records)]
        groups = self.alignment.of(key.name)
        if not groups or parted:
            reason = "the runs part before it" if groups else "no layout explains the parameter's initial values"
            return NotCompared(key, first.claim, reason)
        pieces: dict[int, torch.Tensor] = {}
        for group in groups:
            whole = put_together(key, records, group)
            if not isinstance(whole, dict):
                settled = self._settled(key, first, group, functools.partial(put_together, key, records))
                if settled is None:
                    return whole
                whole = settled
            pieces |= whole
        return self.judge(key, first, pieces, parted=parted)

    def _held(self, key: Key, pieces: Mapping[int, torch.Tensor], group: AlignedParameter) -> dict[int, torch.Tensor]:
        """What the ranks of ``group`` have of a parameter, of those alike or because they hold no element of it."""
        empty = {rank: x for rank, x in self._starts(key.name).items() if not x.numel()}
        return {rank: x for rank, x in empty.items() if rank in group.ranks} | with_those_alike(pieces, group)

    def _settled(
        self, key: Key, first: Record, group: AlignedParameter, told: Callable[[AlignedParameter], object]
    ) -> dict[int, torch.Tensor] | None:
        """What is ``told`` of the ranks with one of the layouts of ``group``, if that is what one rank has.

        Halves of zeros may be cut along either of two axes, so nobody knows which ranks hold the same piece: what an
        optimizer has that shares out its work over one of the axes tells.
        """
        for one in group.one_by_one():
            own = told(one)
            whole = isinstance(own, dict) and len(own) == len(one.ranks)
            if isinstance(own, dict) and whole and self._of_group(key, first, own, one) == "equal":
                return own
        return None

    def _of_group(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], group: AlignedParameter
    ) -> Verdict:
        there = self._alone.get(self.key_alone(replace(key, name=group.name)))
        if not isinstance(there, Record) or there.value is None or there.held is not None:
            return "missing"
        layouts = [*group.layouts, *(_owing(group.layouts) if key.kind == "left" else ())]
        worst: ValueDisagreement | None = None
        for layout in layouts:
            verdict = self._under(key, first, pieces, _as_claimed(layout, first.type), there)
            if verdict is None:
                return "equal"
            worst = worst or verdict
        assert worst is not None, "a parameter that is aligned has a layout"
        return worst

    def _under(
        self,
        key: Key,
        first: Record,
        pieces: Mapping[int, torch.Tensor],
        layout: ObservedLayout,
        there: Record,
    ) -> ValueDisagreement | None:
        """What is wrong with ``pieces`` if they lie as ``layout`` says; None if nothing is."""
        first = replace(first, claim=f"{first.claim}, as the parameter lies: {layout.described(self._values.names)}")
        unequal = self._unequal(key, first, pieces, [step.axis for step in layout.steps if step.way is Way.EQUAL])
        if unequal is not None:
            return self._with_what_is_owed(unequal, pieces, layout, there)
        try:
            value = layout.combined(pieces)
        except Unreadable as error:
            said = f"does not lie as the parameter does: {error}"
            return ValueDisagreement(key, first.claim, Against.SHAPE, 0, tuple(pieces), (), (), None, said)
        assert there.value is not None, "what is compared has a value"
        value = self._values.tolerance.settled(key, there.key.name, value, there.value)
        return self._values.against(key, first, pieces, value, there)

    def _with_what_is_owed(
        self,
        unequal: ValueDisagreement,
        pieces: Mapping[int, torch.Tensor],
        layout: ObservedLayout,
        there: Record,
    ) -> ValueDisagreement:
        """Of gradients that enter a step and are not equal: do they add up, or average, to that of one rank? Then that
        is what nobody has done.
        """
        if unequal.key.kind != "gradient":
            return unequal
        assert there.value is not None, "what is compared has a value"
        axes = [step.axis for step in layout.steps if step.way is Way.EQUAL]
        for count in range(1, len(axes) + 1):
            for owed, way in itertools.product(itertools.combinations(axes, count), (Way.SUM, Way.MEAN)):
                told = replace(layout, steps=tuple(Along(s.axis, way) if s.axis in owed else s for s in layout.steps))
                with contextlib.suppress(Unreadable):
                    if _is_nearly(told.combined(pieces), there.value, pieces[min(pieces)]):
                        over = " and ".join(self._values.names.get(axis, repr(axis)) for axis in owed)
                        return replace(
                            unequal, said=_OWED[way].format(over=over), hint=self._to_do[way].format(over=over)
                        )
        return unequal

    def _replicas(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], groups: Sequence[AlignedParameter]
    ) -> Verdict:
        """Where the run on one rank says nothing: what was equal at first must stay equal."""
        checked = False
        if not groups:
            wrong = self._same_gradient(key, first, pieces) or self._same_piece(key, first, pieces)
            if wrong is not None:
                return wrong
        if groups:
            equal = [(group.ranks, group.equal_axes(first.type)) for group in groups]
        else:
            equal = [(tuple(pieces), self.alignment.equal_axes(key.name))]
        for ranks, axes in equal:
            own = {rank: pieces[rank] for rank in ranks if rank in pieces}
            wrong = self._unequal(key, first, own, axes) if len(own) == len(ranks) else None
            if wrong is not None:
                return wrong
            checked |= bool(axes)
        factor = self.alignment.multiples.get(key.name)
        reason = "the runs part before it" if groups else "no layout explains the parameter's initial values"
        if factor is not None and not groups:
            reason = f"the parameter's initial values are {factor:.4g} times those of the run on one rank"
        return "replicas" if checked else NotCompared(key, first.claim, reason)

    def _as_often_trained(self, name: str, groups: Sequence[AlignedParameter]) -> bool:
        """Has every rank that holds the parameter stepped with a gradient of it as often as the one rank has?"""
        return all(
            self._gradients(self._ranks[rank])[name] in (0, self._gradients(self._alone)[group.name])
            for group in groups
            for rank in group.ranks
        )

    def _gradients(self, run: Entries) -> Counter[str]:
        """How many gradients of each parameter have entered an optimizer in a run."""
        known = self._gradient_counts.get(id(run))
        if known is None:
            known = self._gradient_counts[id(run)] = Counter(key.name for key in run if key.kind == "gradient")
        return known

    def _same_gradient(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> ValueDisagreement | None:
        """Replicas that did not start from the same values: their gradients are equal, and they are not."""
        if key.kind not in ("gradient", "left"):
            return None
        base = min(pieces)
        start = self._starts(key.name)
        for rank, gradient in pieces.items():
            one, other = start.get(base), start.get(rank)
            if rank == base or one is None or other is None or one.shape != other.shape:
                continue
            found = difference(other, one, 0.0)
            if found is not None and torch.equal(gradient, pieces[base]) and not is_constant(gradient):
                said = f"is the same on rank {base} and rank {rank}, but the parameter was not before the first step"
                at = found.index
                return ValueDisagreement(key, first.claim, Against.RANKS, rank, (base, rank), at, at, found, said)
        return None

    def _same_piece(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> ValueDisagreement | None:
        """Pieces of a parameter that all began as the same one, as where all ranks cut the first, or a wrapper has sent
        it to all; or a whole parameter that all have, and its namesake of another number nobody. Not where ranks draw
        their pieces from the same seed: nobody knows what one rank would draw then.
        """
        there = self._alone.get(self.key_alone(key))
        if key.kind != "parameter" or not isinstance(there, Record) or there.value is None or len(pieces) < 2:
            return None
        if not self._drawn_alike:
            return None
        wrong = repeated_piece(key, first, pieces, there.value)
        if wrong is not None:
            return replace(wrong, hint=_OF_ONE_PIECE)
        held, alone = [_initial(run) for run in self._ranks], _initial(self._alone)
        wrong = repeated_layer(key, first, pieces, held, alone, self.alignment.targets)
        return None if wrong is None else replace(wrong, hint=_OF_ONE_LAYER)

    def _starts(self, name: str) -> dict[int, torch.Tensor]:
        """The initial values of a parameter, by rank."""
        held = {rank: _initial(run).get(name) for rank, run in enumerate(self._ranks)}
        return {rank: value for rank, value in held.items() if value is not None}

    def _unequal(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis]
    ) -> ValueDisagreement | None:
        for axis in axes:
            for rank in sorted(pieces):
                base = rank - axis.layout.offset(rank)
                one, other = pieces.get(base), pieces[rank]
                if one is None or (one.shape == other.shape and difference(other, one, 0.0) is None):
                    continue
                found = difference(other, one, 0.0) if one.shape == other.shape else None
                index = () if found is None else found.index
                over = self._values.names.get(axis, repr(axis))
                said = f"should be equal over {over}, as the parameter was, but rank {rank} differs from rank {base}"
                return ValueDisagreement(key, first.claim, Against.RANKS, rank, (base, rank), index, index, found, said)
        return None

    def key_alone(self, key: Key) -> Key:
        """The key under which the run on one rank has what a rank calls ``key``: its optimizer may step elsewhere."""
        lines = self._lines.get((key.kind, key.name), [])
        return replace(key, location=lines[0]) if len(lines) == 1 and key not in self._alone else key


def _is_nearly(value: torch.Tensor, expected: torch.Tensor, piece: torch.Tensor) -> bool:
    """Is it, but for the rounding of low precision, what is expected, which a single rank's piece is not?"""
    if value.shape != expected.shape or piece.shape != expected.shape:
        return False
    off, own = rms_of(value.double() - expected.double()), rms_of(piece.double() - expected.double())
    return off <= min(_NEARLY * rms_of(expected.double()), own / 4)


_NEARLY = 0.15
"""Of the expected size: half precision moves gradients by a tenth, and the rank's own piece is farther off."""
_OWED = {
    Way.SUM: "is not summed over {over}: those of the ranks, added up, are that of one rank",
    Way.MEAN: "is not averaged over {over}: the mean of those of the ranks is that of one rank",
}
_OF_ONE_PIECE = (
    "cut each rank's piece by its own number, and let no wrapper or broadcast go over ranks whose pieces differ: "
    "give it the group of those that hold the same"
)
_OF_ONE_LAYER = "let each rank keep the layers of its own number, of those that all of them have drawn"
_TO_DO = {
    Way.SUM: "all_reduce it over {over} after backward, before the step",
    Way.MEAN: "wrap the model in DistributedDataParallel over {over} and call the wrapper, or all_reduce the gradient "
    "over {over} before the step and divide it by the number of ranks",
}
_SYNCHRONISED = (
    "let the wrapper average it over {over} in the last backward before the step: outside no_sync() (with "
    "require_backward_grad_sync, or set_requires_gradient_sync(True)), in a forward of the wrapper and not of the "
    "module inside, and with the parameter's module in it"
)


def _as_claimed(layout: ObservedLayout, said: TensorType) -> ObservedLayout:
    """``layout`` of the parameter, but where the tensor says of itself that it is whole: a DTensor's gradient may be
    replicated where the parameter is cut, as that of an embedding whose rows are.
    """
    steps = (Along(step.axis, Way.EQUAL) if said.is_equal(step.axis) else step for step in layout.steps)
    return replace(layout, steps=tuple(steps))


def _owing(layouts: Sequence[ObservedLayout]) -> list[ObservedLayout]:
    """The layouts of gradients that are not summed yet: addends, or terms of a mean, where parameters are equal."""
    return [
        ObservedLayout(
            tuple(Along(step.axis, way) if step.way is Way.EQUAL else step for step in layout.steps), layout.padding
        )
        for layout in layouts
        for way in (Way.SUM, Way.MEAN)
    ]


def _initial(run: Entries) -> dict[str, torch.Tensor]:
    """The untyped parameters before the first step, by name."""
    return {
        key.name: record.value
        for key, record in run.items()
        if key.kind == "parameter" and isinstance(record, Record) and record.value is not None
    }
