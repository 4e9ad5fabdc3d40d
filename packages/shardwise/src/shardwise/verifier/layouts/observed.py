"""Tensors that nobody has typed, compared with the run on one rank by the layouts that are true of their values.

A parameter's layout is what its initial values show, and its gradients and later values must lie the same way. A loss
may be equal on all ranks, or their sum, or their mean. The inputs of the outermost modules show whether both runs see
the same data: if no layout explains them, the runs part, and only replicas are compared from there on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.interop.running.recording import Draw, Key, Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import fits, observed_layouts
from shardwise.oracle.reassemble import Grid
from shardwise.types.tensor_type import TensorType

from ..distance.difference import difference, scale_of
from ..distance.hints import hint_for, hint_for_module, size_nearest
from ..distance.numbers import Against, NotCompared, ValueDisagreement
from ..distance.tolerance import Tolerance
from ..distance.value_comparison import Entries, ValueComparison, Verdict
from ..records.annotation_sites import says_no_layout
from .alignment import axis_parts, part_of
from .counted_anew import counted_anew
from .listed_samples import ListedSamples
from .local_training import copies_apart, trained_apart
from .micro_batches import MicroBatches
from .observed_parameters import OF_PARAMETERS, ObservedParameters
from .padded_inputs import are_padded
from .shared_data import overlapping_pieces, repeated_piece

KINDS = (*OF_PARAMETERS, "loss", "input", "module", "evaluation", "read", "clip")
"""Kinds of records whose layout is observed where nobody has said it."""

SHARED_OUT = "a rank has fewer of them than one rank, so there is no telling which"
NEAR = 0.25
"""What is so near to a module's output on one rank, relative to its largest element, is that output, or is wrong."""


class ObservedComparison:
    """Judges untyped records of the ranks of ``grid`` against those of the run on one rank.

    ``apart``      how far the elements of a record may be apart, given its key, the tensors, and its key on one rank.
    ``tolerance``  knows which elements of trained parameters are made of noise.
    ``steps``      of every run, ranks first: before how many records each optimizer step was taken.
    ``wrapped``    some module is in a wrapper that averages gradients.
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
        *,
        wrapped: bool = False,
        talking: bool = False,
    ) -> None:
        self._grid, self._ranks, self._alone = grid, ranks, alone
        parts = {part: f"{called}[{part.layout}]" for axis, called in names.items() for part in _parts(axis)}
        self._values = ValueComparison(parts | dict(names), apart, tolerance)
        self.parameters = ObservedParameters(grid, ranks, alone, self._values, wrapped=wrapped, talking=talking)
        self._axes = [axis for axis in grid.axes.values() if axis.size() > 1]
        self._losses_met: set[Key] = set()
        """Losses of the run on one rank that a rank's loss of another line has been compared with."""
        self._micro_batches = MicroBatches(ranks, alone, steps)
        self._initial = [_before_parameters(run) for run in (*ranks, alone)]
        self._listed = ListedSamples(ranks, alone)
        self._unexplained_inputs: set[tuple[str, int]] = set()
        """Modules in evaluation, with the numbers of their calls, whose inputs no layout explains."""
        self._found_inputs = False
        """Some input is that of the run on one rank."""
        self._padded = False
        """Ranks pad their inputs to the longest of their own samples, so what modules make of them is as long."""

    def concerns(self, key: Key) -> bool:
        """Is ``key`` of a kind that can be observed, and untyped on every rank that has it?

        So is a parameter whose type leaves out an axis of the mesh: it may be that of a stage, or of a local expert.
        """
        records = self._records(key)
        if key.kind not in KINDS or not records:
            return False
        if all(says_no_layout(record.type) for record in records.values()):
            return True
        return key.kind in OF_PARAMETERS and all(self._leaves_out(record.type) for record in records.values())

    def _leaves_out(self, type: TensorType) -> bool:
        covered: int = math.prod(axis.size() for axis in type.axes)
        return covered < len(self._ranks)

    def is_initial(self, key: Key) -> bool:
        """Are these random numbers drawn before the parameters are there, which are explained whatever was drawn?"""
        having = [draws for draws, run in zip(self._initial, (*self._ranks, self._alone), strict=True) if key in run]
        return (
            all(key in draws for draws in having)
            and bool(self.parameters.alignment.names)
            and not self.parameters.unexplained()
        )

    def step_of(self, key: Key) -> int:
        """How many optimizer steps had been taken when the record arose."""
        return key.nth - 1 if key.kind == "gradient" else self._micro_batches.step_of(key)

    @functools.cached_property
    def trained_apart(self) -> frozenset[str]:
        """The parameters that the ranks train each on its own data, between averages."""
        return trained_apart(self._ranks, self.parameters.alignment) | self.copies_apart

    @functools.cached_property
    def copies_apart(self) -> frozenset[str]:
        """Those of them that are copies of a model, of which one rank alone has more."""
        return copies_apart(self._ranks, self._alone)

    def why_apart(self, key: Key) -> str:
        """Why the ranks' records of a parameter need not agree; empty if they have to."""
        if key.name in self.copies_apart and key.kind in ("gradient", "trained"):
            return f"the ranks train copies of a model on their own ({key.name}), of which one rank trains more"
        if key.name in self.trained_apart and key.kind == "gradient":
            return f"the ranks train {key.name} on their own: it differs as it enters a step, and is equal at the end"
        return ""

    def tells_of_data(self, key: Key) -> bool:
        """May an input that is not found in the run on one rank mean that the data are others?

        Not if one rank calls no such module, as one that gathers what losses need, and other inputs are found.
        """
        module = _module_of(key)
        return not self._found_inputs or any(
            other.kind == "input" and _module_of(other) == module for other in self._alone
        )

    def is_told_elsewhere(self, key: Key) -> bool:
        """Is it of a parameter of another name there, a loss of another line, or one of those that ranks deal out?"""
        if key.kind == "loss":
            return key in self._losses_met or (not self._records(key) and self._micro_batches.explain(key))
        return key.kind in OF_PARAMETERS and not self._records(key) and key.name in self.parameters.alignment.targets

    def place_of(self, wrong: ValueDisagreement) -> tuple[bool, int, bool]:
        """Where it stands among the disagreements of all ranks: by step, and in a step initial values first.

        A number that is read shows what became wrong elsewhere, so it stands last.
        """
        return wrong.key.kind == "read", self.step_of(wrong.key), wrong.key.kind != "parameter"

    def judge(self, key: Key, *, parted: bool) -> Verdict:
        """``equal``, ``replicas``, or what is wrong or missing. ``parted``: only the ranks can be compared."""
        records = self._records(key)
        if any(record.unused for record in records.values()):
            # Where none uses it, it is what the outer optimizer itself has a use for.
            records = {rank: one for rank, one in records.items() if not one.unused} or records
        first = records[min(records)]
        missing = next((record.missing for record in records.values() if record.value is None), None)
        if missing is not None:
            return NotCompared(key, first.claim, f"it {missing}")
        if any(record.held is not None for record in records.values()):
            return self.parameters.judge_parts(key, records, parted=parted)
        pieces = {rank: record.value for rank, record in records.items() if record.value is not None}
        if key.kind in OF_PARAMETERS:
            return self.parameters.judge(key, first, pieces, parted=parted)
        if parted:
            cut = self._wrongly_cut(key, first, pieces) if key.kind == "input" else None
            return cut or NotCompared(key, first.claim, "the runs part before it")
        verdict = self._of_module(key, first, pieces) if key.kind == "module" else self._whole(key, first, pieces)
        self._found_inputs |= key.kind == "input" and verdict == "equal"
        return verdict

    def _records(self, key: Key) -> dict[int, Record]:
        found = {rank: run.get(key) for rank, run in enumerate(self._ranks)}
        return {rank: record for rank, record in found.items() if isinstance(record, Record)}

    def _whole(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> Verdict:
        there = self._alone.get(key) or self.loss_of_another_line(key, min(pieces))
        if not isinstance(there, Record) or there.value is None:
            # Of a step that a mesh cuts into more micro-batches the run on one rank has fewer records.
            found = key.kind in ("input", "loss") and self._micro_batches.explain(key)
            found = found or (key.kind == "input" and self._listed.explain(key))
            return "equal" if found else NotCompared(key, first.claim, "the run on one rank does not have it")
        expected, axes = there.value, self._axes_of(pieces)
        if key.kind == "read":
            return self._of_read(key, first, pieces, there)
        if key.kind == "clip":
            return self._of_clipping(key, first, pieces, there)
        if self._lies(key, pieces, there):
            return "equal"
        if key.kind == "input" and (
            counted_anew(pieces, axes, expected) or self._is_padded(key, pieces, there) or self._listed.explain(key)
        ):
            return "equal"
        if key.kind in ("input", "loss") and self._micro_batches.explain(key):
            return self._mispaired(key, first, pieces) or "equal"
        if key.kind == "loss" and there.key.location != key.location:
            return NotCompared(key, first.claim, "on one rank it arises at another line, and is another one")
        if key.kind == "loss" and self._micro_batches.regrouped:
            return NotCompared(key, first.claim, "its micro-batch holds other samples than that of one rank")
        if key.kind == "input":
            self._unexplained_inputs.add((_module_of(key), key.nth))
            reason = "no layout explains the ranks' inputs"
            return self._wrongly_cut(key, first, pieces) or NotCompared(key, first.claim, reason)
        if (key.name, key.nth) in self._unexplained_inputs:
            return NotCompared(key, first.claim, "no layout explains the ranks' inputs")
        if key.kind == "evaluation" and self._micro_batches.shared_out(key, there.key):
            return NotCompared(key, first.claim, SHARED_OUT)
        if key.kind == "evaluation" and self._micro_batches.regrouped:
            return NotCompared(key, first.claim, "the ranks see other samples together than one rank")
        if key.kind == "evaluation" and fits(pieces, axes, expected):
            return self._in_no_layout(key, first, pieces, there)
        if any(piece.shape != expected.shape for piece in pieces.values()):
            return NotCompared(key, first.claim, "the ranks' tensors do not fit together")
        first = replace(first, claim=f"{first.claim}, equal on all ranks, or the terms of a sum or a mean")
        total = torch.stack([piece.double() for piece in pieces.values()]).sum(0)
        mean, wide = total / len(pieces), expected.double()
        nearer = total if (total - wide).abs().sum() < (mean - wide).abs().sum() else mean
        return self._values.against(key, first, pieces, nearer, there) or "equal"

    def _of_read(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], there: Record) -> Verdict:
        """Is a number that is computed of sums over all ranks what one rank reads?

        It may be a sum of means, which the program divides as a number.
        """
        runs = [run for run in self._ranks if key in run]
        if len({sum(other.source == key.source for other in run) for run in (*runs, self._alone)}) > 1:
            return NotCompared(key, first.claim, "it happens more often in one of the runs")
        number, whole = pieces[min(pieces)], there.value
        assert whole is not None, "what is compared has a value"
        first = replace(first, claim=f"{first.claim}, computed of sums over all ranks")
        wrong = self._values.against(key, first, pieces, number, there)
        if wrong is None or number.numel() != 1 or whole.numel() != 1 or not whole:
            return wrong or "equal"
        factor = size_nearest(float(number) / float(whole), self._values.names)
        said = "" if factor == 1 else f", divided by {factor:g}" if factor > 1 else f", times {1 / factor:g}"
        first = replace(first, claim=first.claim + said)
        return self._values.against(key, first, pieces, number / factor, there) or "equal"

    def _of_clipping(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], there: Record) -> Verdict:
        """Do both runs clip by the same factor? If not, their gradients had another scale, which shows nowhere else,
        or the norm is not theirs.

        Ranks that clip by factors of their own, and a run that clips nothing, have gradients that tell.
        """
        one, whole = pieces[min(pieces)], there.value
        assert whole is not None, "what is compared has a value"
        apart = self._values.apart(key, (whole, *pieces.values()), there.key)
        clipped = max(float(one), float(whole)) < 1 and min(float(one), float(whole)) > 0
        if not clipped or any(difference(other, one, apart) is not None for other in pieces.values()):
            return NotCompared(key, first.claim, "ranks clip by factors of their own, or a run clips nothing")
        wrong = self._values.against(key, first, pieces, one, there)
        if wrong is None:
            return "equal"
        times = float(whole) / float(one)
        hint = hint_for(times, 2, self._values.names)
        return replace(wrong, said=f"{wrong.said}: the norm is {times:.4g} times as large", hint=hint)

    def _lies(self, key: Key, pieces: Mapping[int, torch.Tensor], there: Record) -> bool:
        """Are the pieces in some layout what one rank has?"""
        expected = there.value
        assert expected is not None, "what is compared has a value"
        apart = self._values.apart(key, (expected, *pieces.values()), there.key)
        typical = self._values.tolerance.typical(there.key, expected)
        found = observed_layouts(pieces, self._axes_of(pieces), expected, apart)
        if typical is None:
            return next(found, None) is not None
        return any(difference(layout.combined(pieces), expected, apart, typical) is None for layout in found)

    def _wrongly_cut(self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor]) -> ValueDisagreement | None:
        """An input that is cut from what one rank has, and from nothing else, so that some of it no rank has.

        That is so as well where another input, such as one that is made of this one, is not found at all.
        """
        there = self._alone.get(key)
        if not isinstance(there, Record) or there.value is None or self._lies(key, pieces, there):
            return None
        return repeated_piece(key, first, pieces, there.value) or overlapping_pieces(key, first, pieces, there.value)

    def _is_padded(self, key: Key, pieces: Mapping[int, torch.Tensor], there: Record) -> bool:
        """Are the pieces, once they are as long, in some layout what one rank has?"""
        assert there.value is not None, "what is compared has a value"
        found = are_padded(pieces, there.value, lambda longer: self._lies(key, longer, there))
        self._padded |= found
        return found

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
            shapes = {piece.shape for piece in own.values()}
            apart = len(shapes) > 1 and (self._padded or there.value.shape in shapes)
            if apart or not fits(own, self._axes_of(own), there.value):
                continue  # tokens may be dealt out, or calls counted, otherwise, which is nothing wrong
            compared = True
            if not self._lies(key, own, there):
                if self._micro_batches.shared_out(key, there.key):
                    return NotCompared(key, first.claim, SHARED_OUT)
                wrong = self._near(key, first, own, there) or self._in_no_layout(key, first, own, there)
                return replace(wrong, hint=wrong.hint or hint_for_module(name))
        return "equal" if compared else NotCompared(key, first.claim, "the run on one rank does not have it")

    def _near(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], there: Record
    ) -> ValueDisagreement | None:
        """What is wrong in the layout in which the pieces nearly are what one rank has, if there is one.

        Only where rounding has been measured: else what is near may be right.
        """
        expected = there.value
        if expected is None or self._values.tolerance.typical(there.key, expected) is None:
            return None
        layouts = observed_layouts(pieces, self._axes_of(pieces), expected, NEAR * scale_of(expected))
        found = (
            (layout, self._values.against(key, first, pieces, layout.combined(pieces), there)) for layout in layouts
        )
        layout, wrong = min(
            ((layout, wrong) for layout, wrong in found if wrong is not None and wrong.difference is not None),
            key=lambda one: one[1].difference.largest if one[1].difference is not None else 0.0,
            default=(None, None),
        )
        if layout is None or wrong is None:
            return None
        return replace(wrong, claim=f"{first.claim}, {layout.described(self._values.names)}", near=True)

    def _in_no_layout(
        self, key: Key, first: Record, pieces: Mapping[int, torch.Tensor], there: Record
    ) -> ValueDisagreement:
        whole, expected = pieces[min(pieces)], there.value
        if expected is not None and whole.shape == expected.shape:
            whole = torch.stack([piece.double() for piece in pieces.values()]).mean(0).to(whole.dtype)
        return replace(
            self._values.against(key, first, pieces, whole, there)
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
        parameter = next((one for one in self.parameters.alignment.names if one.startswith(f"{path}.")), None)
        if parameter is None:
            return [(ranks, name)]
        inside = parameter.removeprefix(path)
        return [
            (group.ranks, group.name.removesuffix(inside) + space + kind)
            for group in self.parameters.alignment.of(parameter)
            if group.name.endswith(inside)
        ]

    def loss_of_another_line(self, key: Key, rank: int) -> Record | Draw | None:
        """The loss of the run on one rank with the number of this one of ``rank``, where it arises at other lines."""
        if key.kind != "loss" or any(other.source == key.source for other in self._alone):
            return None
        lines, there = ({other.source for other in run} for run in (self._ranks[rank], self._alone))
        own = [other for other in self._ranks[rank] if other.kind == "loss" and other.source not in there]
        alone = [other for other in self._alone if other.kind == "loss" and other.source not in lines]
        if len(own) != len(alone) or key not in own:
            return None
        met = alone[own.index(key)]
        self._losses_met.add(met)
        return self._alone[met]

    def _axes_of(self, pieces: Mapping[int, torch.Tensor]) -> list[MeshAxis]:
        coordinates = self._grid.coordinates
        at = {axis: index for index, axis in enumerate(self._grid.axes.values())}
        return [axis for axis in self._axes if len({coordinates[rank][at[axis]] for rank in pieces}) > 1]


def _parts(axis: MeshAxis) -> list[MeshAxis]:
    shared = [part_of(axis, (0, distance)) for distance in range(1, axis.size())]
    return [part for both in axis_parts(axis) for part in both] + [part for part in shared if part is not None]


def _module_of(key: Key) -> str:
    """What an input is given to."""
    return key.name.partition(" of ")[2]


def _before_parameters(run: Entries) -> frozenset[Key]:
    """The random draws before the first parameter is seen."""
    keys = list(run)
    first = next((at for at, key in enumerate(keys) if key.kind == "parameter"), 0)
    return frozenset(key for key in keys[:first] if key.kind == "drawn")
