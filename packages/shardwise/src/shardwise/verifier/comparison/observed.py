"""Tensors that nobody has typed, compared with the run on one rank by the layouts that are true of their values.

A parameter's layout is what its initial values show, and its gradients and later values must lie the same way. A loss
may be equal on all ranks, or their sum, or their mean. The inputs of the outermost modules show whether both runs see
the same data: if no layout explains them, the runs part, and only replicas are compared from there on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Draw, Key, Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import Along, ObservedLayout, Way, fits, observed_layouts
from shardwise.oracle.reassemble import Grid, Unreadable, offset
from shardwise.types.placement import UNKNOWN
from shardwise.types.tensor_type import TensorType

from ..records.naming import NAMELESS
from .alignment import AlignedParameter, Alignment, is_constant
from .difference import Difference, difference, scale_of
from .hints import hint_for
from .micro_batches import MicroBatches
from .numbers import Against, NotCompared, ValueDisagreement
from .shared_data import repeated_piece
from .tolerance import Tolerance

OF_PARAMETERS = ("parameter", "gradient", "left", "trained")
KINDS = (*OF_PARAMETERS, "loss", "input", "module", "evaluation")
"""Kinds of records whose layout is observed where nobody has said it."""

NEAR = 0.25
"""What is so near to a module's output on one rank, relative to its largest element, is that output, or is wrong."""
Entries = Mapping[Key, Record | Draw]
Verdict = ValueDisagreement | NotCompared | str


class ObservedComparison:
    """Judges untyped records of the ranks of ``grid`` against those of the run on one rank.

    ``apart``      how far the elements of a record may be apart, given its key, the tensors, and its key on one rank.
    ``tolerance``  knows which elements of trained parameters are made of noise.
    ``steps``      of every run, ranks first: before how many records each optimizer step was taken.
    """

    def __init__(
        self,
        grid: Grid,
        ranks: Sequence[Entries],
        alone: Entries,
        names: Mapping[MeshAxis, str],
        apart: Callable[[Key, Sequence[torch.Tensor], Key], float],
        tolerance: Tolerance,
        steps: Sequence[Sequence[int]],
    ) -> None:
        self._tolerance = tolerance
        self._grid, self._ranks, self._alone, self._names, self._apart = grid, ranks, alone, names, apart
        self._axes = [axis for axis in grid.axes.values() if axis.size() > 1]
        self._alignment: Alignment | None = None
        self._losses_met: set[Key] = set()
        """Losses of the run on one rank that a rank's loss of another line has been compared with."""
        self._micro_batches = MicroBatches(ranks, alone, steps)
        self._lines: dict[tuple[str, str], list[SourceLocation | None]] = {}
        """Where the run on one rank has records of parameters, by their kind and name."""
        for key in alone:
            if key.kind in OF_PARAMETERS and key.nth == 1:
                self._lines.setdefault((key.kind, key.name), []).append(key.location)
        self._initial = [_before_parameters(run) for run in (*ranks, alone)]
        self._unexplained_inputs: set[tuple[str, int]] = set()
        """Modules in evaluation, with the numbers of their calls, whose inputs no layout explains."""

    def concerns(self, key: Key) -> bool:
        """Is ``key`` of a kind that can be observed, and untyped on every rank that has it?

        So is a parameter whose type leaves out an axis of the mesh: it may be that of a stage, or of a local expert.
        """
        records = self._records(key)
        if key.kind not in KINDS or not records:
            return False
        if all(_says_nothing(record.type) for record in records.values()):
            return True
        return key.kind in OF_PARAMETERS and all(self._leaves_out(record.type) for record in records.values())

    def _leaves_out(self, type: TensorType) -> bool:
        covered: int = math.prod(axis.size() for axis in type.axes)
        return covered < len(self._ranks)

    @property
    def alignment(self) -> Alignment:
        """Where the parameters that enter an optimizer are found in the run on one rank."""
        if self._alignment is None:
            self._alignment = Alignment(self._grid, [_initial(run) for run in self._ranks], _initial(self._alone))
        return self._alignment

    def unexplained(self) -> list[str]:
        """The parameters whose initial values no layout explains; of buffers that an optimizer has of its own only if
        there are no others.
        """
        names = dict.fromkeys(name for run in self._ranks for name in _initial(run))
        lost = [name for name in names if not self.alignment.of(name)]
        named = [name for name in lost if not name.startswith(NAMELESS)]
        return named if len(lost) < len(names) else lost

    def is_initial(self, key: Key) -> bool:
        """Are these random numbers drawn before the parameters are there, which are explained whatever was drawn?"""
        having = [draws for draws, run in zip(self._initial, (*self._ranks, self._alone), strict=True) if key in run]
        return all(key in draws for draws in having) and bool(self.alignment.names) and not self.unexplained()

    def step_of(self, key: Key) -> int:
        """How many optimizer steps had been taken when the record arose."""
        return key.nth - 1 if key.kind == "gradient" else self._micro_batches.step_of(key)

    def is_told_elsewhere(self, key: Key) -> bool:
        """Is it of a parameter that the ranks hold under another name, or a loss that arises at another line there?"""
        if key.kind == "loss":
            return key in self._losses_met
        return key.kind in OF_PARAMETERS and not self._records(key) and key.name in self.alignment.targets

    def place_of(self, wrong: ValueDisagreement) -> tuple[int, bool]:
        """Where it stands among the disagreements of all ranks: by step, and in a step initial values first."""
        return self.step_of(wrong.key), wrong.key.kind != "parameter"

    def judge(self, key: Key, *, parted: bool) -> Verdict:
        """``equal``, ``replicas``, or what is wrong or missing. ``parted``: only the ranks can be compared."""
        records = self._records(key)
        first = records[min(records)]
        missing = next((record.missing for record in records.values() if record.value is None), None)
        if missing is not None:
            return NotCompared(key, first.claim, f"it {missing}")
        pieces = {rank: record.value for rank, record in records.items() if record.value is not None}
        if key.kind in OF_PARAMETERS:
            return self._of_parameter(key, first, pieces, parted=parted)
        if parted:
            return NotCompared(key, first.claim, "the runs part before it")
        return self._of_module(key, first, pieces) if key.kind == "module" else self._whole(key, first, pieces)

    def _records(self, key: Key) -> dict[int, Record]:
        found = {rank: run.get(key) for rank, run in enumerate(self._ranks)}
        return {rank: record for rank, record in found.items() if isinstance(record, Record)}

    def _of_parameter(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], *, parted: bool) -> Verdict:
        groups = self.alignment.of(key.name)
        if not groups or parted:
            return self._replicas(key, first, pieces, groups)
        compared = False
        for group in groups:
            own = {rank: pieces[rank] for rank in group.ranks if rank in pieces}
            if own and all(step.way is Way.EQUAL for step in group.layouts[0].steps):
                # An optimizer that shares out its work has the gradient on the ranks that need it.
                own = {rank: own.get(rank, own[min(own)]) for rank in group.ranks}
            own |= {
                rank: x
                for rank, x in self._starts(key.name).items()
                if rank in group.ranks and rank not in own and not x.numel()
            }
            if len(own) < len(group.ranks):
                missing = ", ".join(str(rank) for rank in group.ranks if rank not in own)
                return NotCompared(key, first.claim, f"rank {missing} of those that hold it has none")
            verdict = self._of_group(key, first, own, group)
            if isinstance(verdict, ValueDisagreement):
                return verdict
            compared |= verdict == "equal"
        return "equal" if compared else NotCompared(key, first.claim, "the run on one rank does not have it")

    def _of_group(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], group: AlignedParameter
    ) -> Verdict:
        there = self._alone.get(self.key_alone(replace(key, name=group.name)))
        if not isinstance(there, Record) or there.value is None:
            return "missing"
        layouts = [*group.layouts, *(_owing(group.layouts) if key.kind == "left" else ())]
        worst: ValueDisagreement | None = None
        for layout in layouts:
            verdict = self._under(key, first, pieces, layout, there)
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
        first = replace(first, claim=f"{_shape(first)}, as the parameter lies: {layout.described(self._names)}")
        unequal = self._unequal(key, first, pieces, [step.axis for step in layout.steps if step.way is Way.EQUAL])
        if unequal is not None:
            return unequal
        try:
            value = layout.combined(pieces)
        except Unreadable as error:
            said = f"does not lie as the parameter does: {error}"
            return ValueDisagreement(key, first.claim, Against.SHAPE, 0, tuple(pieces), (), (), None, said)
        assert there.value is not None, "what is compared has a value"
        value = self._tolerance.settled(key, there.key.name, value, there.value)
        return self._against(key, first, pieces, value, there)

    def _against(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], value: torch.Tensor, there: Record
    ) -> ValueDisagreement | None:
        expected = there.value
        assert expected is not None, "what is compared has a value"
        if value.shape != expected.shape:
            said = f"is {list(value.shape)} together, and {list(expected.shape)} on one rank"
            return ValueDisagreement(key, first.claim, Against.SHAPE, 0, tuple(pieces), (), (), None, said)
        apart = self._apart(key, (value, expected, *pieces.values()), there.key)
        found = difference(value, expected, apart, self._tolerance.typical(there.key, expected))
        if found is None:
            return None
        return self._differs(key, first, pieces, found)

    def _differs(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], found: Difference
    ) -> ValueDisagreement:
        hint = hint_for(found.factor, found.total, self._names)
        said = "differs from the run on one rank"
        rank = min(pieces)
        return ValueDisagreement(
            key, first.claim, Against.ALONE, rank, (rank,), found.index, found.index, found, said, hint
        )

    def _replicas(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], groups: Sequence[AlignedParameter]
    ) -> Verdict:
        """Where the run on one rank says nothing: what was equal at first must stay equal."""
        checked = False
        if not groups and key.kind in ("gradient", "left"):
            wrong = self._same_gradient(key, first, pieces)
            if wrong is not None:
                return wrong
        if groups:
            equal = [
                (group.ranks, [step.axis for step in group.layouts[0].steps if step.way is Way.EQUAL])
                for group in groups
            ]
        else:
            equal = [(tuple(pieces), list(self.alignment.equal_axes(key.name)))]
        for ranks, axes in equal:
            own = {rank: pieces[rank] for rank in ranks if rank in pieces}
            wrong = self._unequal(key, first, own, axes) if len(own) == len(ranks) else None
            if wrong is not None:
                return wrong
            checked |= bool(axes)
        reason = "the runs part before it" if groups else "no layout explains the parameter's initial values"
        return "replicas" if checked else NotCompared(key, first.claim, reason)

    def _same_gradient(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> ValueDisagreement | None:
        """Replicas that did not start from the same values: their gradients are equal, and they are not."""
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

    def _starts(self, name: str) -> dict[int, torch.Tensor]:
        """The initial values of a parameter, by rank."""
        held = {rank: _initial(run).get(name) for rank, run in enumerate(self._ranks)}
        return {rank: value for rank, value in held.items() if value is not None}

    def _unequal(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis]
    ) -> ValueDisagreement | None:
        for axis in axes:
            for rank in sorted(pieces):
                base = rank - offset(axis, rank)
                one, other = pieces.get(base), pieces[rank]
                if one is None or (one.shape == other.shape and difference(other, one, 0.0) is None):
                    continue
                found = difference(other, one, 0.0) if one.shape == other.shape else None
                index = () if found is None else found.index
                over = self._names.get(axis, repr(axis))
                said = f"should be equal over {over}, as the parameter was, but rank {rank} differs from rank {base}"
                return ValueDisagreement(key, first.claim, Against.RANKS, rank, (base, rank), index, index, found, said)
        return None

    def _whole(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> Verdict:
        there = self._alone.get(key) or self.loss_of_another_line(key, min(pieces))
        if not isinstance(there, Record) or there.value is None:
            return NotCompared(key, first.claim, "the run on one rank does not have it")
        expected = there.value
        axes = self._axes_of(pieces)
        if self._lies(key, pieces, there):
            return "equal"
        if key.kind in ("input", "loss") and self._micro_batches.explain(key):
            return self._mispaired(key, first, pieces) or "equal"
        if key.kind == "loss" and there.key.location != key.location:
            return NotCompared(key, first.claim, "on one rank it arises at another line, and is another one")
        if key.kind == "loss" and self._micro_batches.regrouped:
            return NotCompared(key, first.claim, "its micro-batch holds other samples than that of one rank")
        if key.kind == "input":
            self._unexplained_inputs.add((key.name.partition(" of ")[2], key.nth))
            return repeated_piece(key, first, pieces, expected) or NotCompared(
                key, first.claim, "no layout explains the ranks' inputs"
            )
        if (key.name, key.nth) in self._unexplained_inputs:
            return NotCompared(key, first.claim, "no layout explains the ranks' inputs")
        if key.kind == "evaluation" and self._micro_batches.regrouped:
            return NotCompared(key, first.claim, "the ranks see other samples together than one rank")
        if key.kind == "evaluation" and fits(pieces, axes, expected):
            return self._in_no_layout(key, first, pieces, there)
        if any(piece.shape != expected.shape for piece in pieces.values()):
            return NotCompared(key, first.claim, "the ranks' tensors do not fit together")
        first = replace(first, claim=f"{_shape(first)}, equal on all ranks, or the terms of a sum or a mean")
        mean = torch.stack([piece.double() for piece in pieces.values()]).mean(0)
        return self._against(key, first, pieces, mean, there) or "equal"

    def _lies(self, key: Key, pieces: Mapping[int, torch.Tensor], there: Record) -> bool:
        """Are the pieces in some layout what one rank has?"""
        expected = there.value
        assert expected is not None, "what is compared has a value"
        apart = self._apart(key, (expected, *pieces.values()), there.key)
        typical = self._tolerance.typical(there.key, expected)
        found = observed_layouts(pieces, self._axes_of(pieces), expected, apart)
        if typical is None:
            return next(found, None) is not None
        return any(difference(layout.combined(pieces), expected, apart, typical) is None for layout in found)

    def _of_module(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> Verdict:
        """Is there a layout in which the ranks' outputs are that of the module on one rank?"""
        if self._micro_batches.regrouped:
            return NotCompared(key, first.claim, "its micro-batch holds other samples than that of one rank")
        compared = False
        for ranks, name in self._same_module(key.name, tuple(pieces)):
            own = {rank: pieces[rank] for rank in ranks if rank in pieces}
            there = self._alone.get(Key(key.kind, name, None, key.nth))
            if not own or not isinstance(there, Record) or there.value is None:
                continue
            if not fits(own, self._axes_of(own), there.value):
                continue  # tokens may be dealt out otherwise, which is nothing wrong
            compared = True
            if not self._lies(key, own, there):
                return self._near(key, first, own, there) or self._in_no_layout(key, first, own, there)
        return "equal" if compared else NotCompared(key, first.claim, "the run on one rank does not have it")

    def _near(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], there: Record
    ) -> ValueDisagreement | None:
        """What is wrong in the layout in which the pieces nearly are what one rank has, if there is one.

        Only where rounding has been measured: else what is near may be right.
        """
        expected = there.value
        if expected is None or self._tolerance.typical(there.key, expected) is None:
            return None
        layouts = observed_layouts(pieces, self._axes_of(pieces), expected, NEAR * scale_of(expected))
        found = ((layout, self._against(key, first, pieces, layout.combined(pieces), there)) for layout in layouts)
        layout, wrong = min(
            ((layout, wrong) for layout, wrong in found if wrong is not None and wrong.difference is not None),
            key=lambda one: one[1].difference.largest if one[1].difference is not None else 0.0,
            default=(None, None),
        )
        if layout is None or wrong is None:
            return None
        return replace(wrong, claim=f"{_shape(first)}, {layout.described(self._names)}", near=True)

    def _in_no_layout(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], there: Record
    ) -> ValueDisagreement:
        whole, expected = pieces[min(pieces)], there.value
        if expected is not None and whole.shape == expected.shape:
            whole = torch.stack([piece.double() for piece in pieces.values()]).mean(0).to(whole.dtype)
        return replace(
            self._against(key, first, pieces, whole, there)
            or ValueDisagreement(key, first.claim, Against.RANKS, min(pieces), tuple(pieces), (), (), None, ""),
            said="is not that of the run on one rank, in any layout",
        )

    def _mispaired(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> ValueDisagreement | None:
        if not self._micro_batches.mispaired(key):
            return None
        said = "holds the samples of the run on one rank, but beside other samples of input 0"
        return ValueDisagreement(key, first.claim, Against.SHAPE, min(pieces), tuple(pieces), (), (), None, said)

    def _same_module(self, name: str, ranks: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
        """The ranks by what the module is called on one rank, which its parameters tell."""
        path, space, kind = name.partition(" ")
        parameter = next((one for one in self.alignment.names if one.startswith(f"{path}.")), None)
        if parameter is None:
            return [(ranks, name)]
        inside = parameter.removeprefix(path)
        return [
            (group.ranks, group.name.removesuffix(inside) + space + kind)
            for group in self.alignment.of(parameter)
            if group.name.endswith(inside)
        ]

    def key_alone(self, key: Key) -> Key:
        """The key under which the run on one rank has what a rank calls ``key``: its optimizer may step elsewhere."""
        lines = self._lines.get((key.kind, key.name), [])
        return replace(key, location=lines[0]) if len(lines) == 1 and key not in self._alone else key

    def loss_of_another_line(self, key: Key, rank: int) -> Record | Draw | None:
        """The loss of the run on one rank with the number of this one of ``rank``, where it arises at other lines."""
        if key.kind != "loss" or any(other.source == key.source for other in self._alone):
            return None
        own = [other for other in self._ranks[rank] if other.kind == "loss"]
        alone = [other for other in self._alone if other.kind == "loss"]
        if len(own) != len(alone) or key not in own:
            return None
        met = alone[own.index(key)]
        self._losses_met.add(met)
        return self._alone[met]

    def _axes_of(self, pieces: Mapping[int, torch.Tensor]) -> list[MeshAxis]:
        coordinates = self._grid.coordinates
        at = {axis: index for index, axis in enumerate(self._grid.axes.values())}
        return [axis for axis in self._axes if len({coordinates[rank][at[axis]] for rank in pieces}) > 1]


def _shape(record: Record) -> str:
    """Dtype and shape, without the types that nobody has said."""
    return record.claim.removesuffix(" unknown")


def _says_nothing(type: TensorType) -> bool:
    """Does the type leave open how the ranks' tensors combine?"""
    return type.spec is None and all(place.is_varying or place is UNKNOWN for place in type.placements)


def _owing(layouts: Sequence[ObservedLayout]) -> list[ObservedLayout]:
    """The layouts of gradients that are not summed yet: addends, or terms of a mean, where parameters are equal."""
    return [
        ObservedLayout(
            tuple(Along(step.axis, way) if step.way is Way.EQUAL else step for step in layout.steps), layout.padding
        )
        for layout in layouts
        for way in (Way.SUM, Way.MEAN)
    ]


def _before_parameters(run: Entries) -> frozenset[Key]:
    """The random draws before the first parameter is seen."""
    keys = list(run)
    first = next((at for at, key in enumerate(keys) if key.kind == "parameter"), 0)
    return frozenset(key for key in keys[:first] if key.kind == "drawn")


def _initial(run: Entries) -> dict[str, torch.Tensor]:
    """The untyped parameters before the first step, by name."""
    return {
        key.name: record.value
        for key, record in run.items()
        if key.kind == "parameter" and isinstance(record, Record) and record.value is not None
    }
