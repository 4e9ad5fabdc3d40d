"""Which tensors of a run on a mesh are not what they are claimed to be? Every record in program order, put together by
its type and compared with the same record of the run on one rank.

Values that are claimed to be equal on several ranks must be equal bit by bit. Where the two runs do different work
(random numbers that differ, local sizes that do not shrink with the mesh), only that is compared from there on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.printing.limits import counted
from shardwise.interop.running.recording import IN_EVALUATION, Draw, Key, Record
from shardwise.oracle.observed_layout import ObservedLayout, layout_said, observed_layouts
from shardwise.oracle.reassemble import Grid, Unequal, Unreadable
from shardwise.types.tensor_type import Ground, TensorType

from ..distance.difference import difference, is_same
from ..distance.hints import hint_for
from ..distance.numbers import GRADIENTS, Against, NotCompared, Numbers, ValueDisagreement
from ..distance.tolerance import Tolerance
from ..distance.value_comparison import together
from ..layouts.copied_parts import with_copies_named
from ..layouts.declared import KnownLayouts, loose_axes
from ..layouts.local_training import REMEDY
from ..layouts.observed import ObservedComparison
from ..layouts.observed_parameters import OF_PARAMETERS
from ..layouts.shared_draws import shared_out
from ..records.record import RankRun
from ..records.rounded import Spread
from .backward_order import first_in_backward
from .clipped_gradients import with_clipped_last
from .forward_order import first_module, with_use
from .notes import with_convention
from .partings import Partings

GROWS = "its size does not shrink as the mesh grows"


def compare(
    ranks: Sequence[RankRun],
    alone: RankRun,
    *,
    rtol: float | None = None,
    mesh: Mapping[str, int] | None = None,
    spread: Spread | None = None,
) -> Numbers:
    """The verdict on the ranks of a mesh, in rank order, against the run on one rank.

    ``rtol``  how far values may be apart relative to the largest element; None takes it from the dtypes.
    ``mesh``  sizes of the axes, outermost first: tensors that nobody has typed are then compared by the layouts that
              are true of their values.
    ``spread``  how far rounding moves the records of the run on one rank, where that has been measured; None takes what
              that run has kept of it.
    """
    ranks, alone = with_copies_named(ranks, alone)
    return _Comparison(ranks, alone, rtol, mesh, spread).numbers()


class _Comparison:
    def __init__(
        self,
        ranks: Sequence[RankRun],
        alone: RankRun,
        rtol: float | None,
        mesh: Mapping[str, int] | None,
        spread: Spread | None,
    ) -> None:
        self.runs = (*ranks, alone)
        self.ranks = [_by_key(run) for run in ranks]
        self.alone = _by_key(alone)
        self.counts = [_counts(run) for run in (*ranks, alone)]
        self.axes: dict[Any, str] = {axis: name for run in ranks for axis, name in run.axes.items()}
        self.axes |= {axis: name for name, axis in Grid.of(mesh or {}).axes.items() if axis.size() > 1}
        dtypes = {dtype for run in (*ranks, alone) for dtype in run.rounded_to}
        self.tolerance = Tolerance(alone, dtypes, rtol, spread)
        self.layouts = KnownLayouts()
        self.observed = (
            None
            if mesh is None
            else ObservedComparison(
                Grid.of(mesh),
                self.ranks,
                self.alone,
                self.axes,
                self._apart,
                self.tolerance,
                [run.steps for run in self.runs],
                wrapped=any(run.data_parallel for run in ranks),
                talking=any(run.talking_steps for run in ranks),
            )
        )
        """Judges what nobody has typed; None where the mesh is not known."""
        self.aligned = False
        """The parameters that enter an optimizer have been looked for in the run on one rank."""
        self.partings = Partings()
        self.shared_draws = shared_out(self.ranks, self.alone)
        """Sources of draws of which every rank makes a part."""
        self.out_of_step = False
        """A loop of one run had more turns than in the other: which results belong together is no longer sure."""

    def numbers(self) -> Numbers:
        equal = replicas = gradients = 0
        disagreements: list[ValueDisagreement] = []
        modules: list[ValueDisagreement] = []
        not_compared: list[NotCompared] = []
        judged: list[tuple[Key, object]] = []
        for key in self._keys():
            if key.kind == "drawn":
                initial = self.observed is not None and self.observed.is_initial(key)
                if not initial and key.source not in self.shared_draws:
                    self.partings.draw(key, [run.get(key) for run in (*self.ranks, self.alone)])
                continue
            if key.kind == "result" and not any(key in run for run in self.ranks):
                continue
            if self.observed is not None and self.observed.is_told_elsewhere(key):
                continue
            verdict = self._record(key)
            if key.kind == "input" and not isinstance(verdict, ValueDisagreement):
                continue  # it says whether the runs see the same data, and is no result
            if key.kind == "gradient":
                judged.append((key, verdict))
            if key.kind == "declared":
                self.partings.just_drawn = False
            if isinstance(verdict, ValueDisagreement):
                verdict = with_use(verdict, self.ranks) if key.kind == "input" else verdict
                (modules if key.kind == "module" else disagreements).append(verdict)
            elif isinstance(verdict, NotCompared):
                if key.kind not in ("result", "module", "evaluation", "read", "clip"):
                    not_compared.append(verdict)
            else:
                equal += verdict == "equal"
                gradients += verdict == "equal" and key.kind in GRADIENTS
                replicas += verdict == "replicas"
        if self.observed is not None:  # what only a later rank has comes behind everything of the first
            disagreements.sort(key=self.observed.place_of)
        numbers = Numbers(
            equal,
            replicas,
            tuple(disagreements),
            tuple(not_compared),
            self.partings.first,
            module=first_module(modules, disagreements, self.observed, self.ranks),
            backward=first_in_backward(judged, self.ranks, self.axes),
            gradients=gradients,
        )
        return with_convention(with_clipped_last(numbers, self.axes), self.runs[:-1], self.runs[-1], self.axes)

    def _keys(self) -> Iterator[Key]:
        """Of every record of any run: in the order of the first rank that has it."""
        seen: set[Key] = set()
        for run in (*self.ranks, self.alone):
            for key in run:
                if key not in seen:
                    seen.add(key)
                    yield key

    def _observe(self, observed: ObservedComparison, key: Key) -> ValueDisagreement | NotCompared | str:
        """The verdict on a record that nobody has typed."""
        if key.kind in OF_PARAMETERS and not self.aligned:
            self.aligned = True
            unexplained = observed.parameters.unexplained()
            if unexplained:
                some = ", ".join(unexplained[:3]) + (", ..." if len(unexplained) > 3 else "")
                self.partings.add(
                    key, f"the ranks' initial values of {some} are not those of the run on one rank, in any layout"
                )
            else:
                self.partings.forget_draws()  # whatever was drawn before, both runs start from the same parameters
        apart = observed.why_apart(key)
        if apart:
            self.partings.add(key, apart, REMEDY)
            return NotCompared(key, "", "the ranks train it on their own")
        verdict = observed.judge(key, parted=self.partings.first is not None)
        lost = key.kind == "input" and not isinstance(verdict, str) and not key.name.endswith(IN_EVALUATION)
        if lost and self.partings.first is None and observed.tells_of_data(key):
            self.partings.add(key, "the ranks' inputs together are not those of the run on one rank")
        return verdict

    def _record(self, key: Key) -> ValueDisagreement | NotCompared | str:
        if self.observed is not None and self.observed.concerns(key):
            return self._observe(self.observed, key)
        records = [record for run in self.ranks if isinstance(record := run.get(key), Record)]
        if not records:
            there = self.alone[key]
            return NotCompared(key, there.claim if isinstance(there, Record) else "", "only the run on one rank has it")
        first = records[0]
        if len(records) < len(self.ranks):
            having = [str(rank) for rank, run in enumerate(self.ranks) if key in run]
            return NotCompared(key, first.claim, f"only rank {', '.join(having)} has it")
        if len({counts[key.source] for counts in self.counts[:-1]}) > 1:
            times = ", ".join(str(counts[key.source]) for counts in self.counts[:-1])
            return NotCompared(key, first.claim, f"it happens {times} times on the ranks, so there is no telling which")
        other = next((record for record in records if record.type is not first.type), None)
        if other is not None:
            return NotCompared(key, first.claim, f"another rank claims {other.claim}")
        missing = next((record.missing for record in records if record.value is None), None)
        if missing is not None:
            return NotCompared(key, first.claim, f"it {missing}")
        if any(record.held is not None for record in records):
            return NotCompared(key, first.claim, "each rank has a part of it, and the mesh is not known")
        verdict = self._judge(first, records, first.type)
        if isinstance(verdict, ValueDisagreement) and first.owing is not None:
            owing = self._judge(first, records, first.owing)
            verdict = verdict if isinstance(owing, ValueDisagreement) else owing
        if isinstance(verdict, ValueDisagreement) and first.type.ground is not Ground.ABSENT:
            # Which part of a constant a rank takes may follow from its number, which types do not see.
            return NotCompared(key, first.claim, "it is made of constants, and nobody says how it lies on the ranks")
        return verdict

    def _judge(
        self, first: Record, records: Sequence[Record], type: TensorType
    ) -> ValueDisagreement | NotCompared | str:
        """``equal``, ``replicas``, or what is wrong or missing."""
        key = first.key
        pieces = {rank: record.value for rank, record in enumerate(records) if record.value is not None}
        expected, reason = self._expected(key)
        layout = self.layouts.of(key, type)
        try:
            values = together(pieces, type, rescaled=key.kind not in OF_PARAMETERS)
            if layout is not None:
                values = {0: layout.combined(pieces)}
        except Unequal as error:
            return self._unequal(first, pieces, error, _place_on(type, error.axis, self.axes))
        except Unreadable as error:
            return ValueDisagreement(key, first.claim, Against.SHAPE, 0, tuple(pieces), (), (), None, str(error))
        replicated = len(type.partial_axes) < len(type.axes)
        checked = "replicas" if replicated and len(values) < len(pieces) else None
        if len(values) > 1:
            loose = loose_axes(type)
            if loose and key.kind == "declared" and expected is not None and self.partings.grows(pieces, expected):
                self.partings.add(
                    key, f"{list(expected.shape)} random numbers are drawn on every rank, and on one rank too"
                )
                return checked or NotCompared(key, first.claim, GROWS)
            if loose and expected is not None:
                return self._guess(first, pieces, type, expected, checked)
            if loose or key.kind not in OF_PARAMETERS:
                return checked or self._unsaid(first, loose)
            there = self.alone.get(key)
            whole = there.value if isinstance(there, Record) else None
            shapes = {value.shape for value in values.values()}
            if len(shapes) > 1 or (whole is not None and shapes != {whole.shape}):
                return checked or self._unsaid(first, ())
            base, *others = values
            wrong = next((rank for rank in others if not is_same(values[rank], values[base])), None)
            if wrong is not None:
                return self._differ(first, values, base, wrong, "has no type, so it should be equal on all ranks")
            checked = "replicas"
        if expected is None:
            return checked or NotCompared(key, first.claim, reason)
        return self._against(first, pieces, layout or layout_said(type), values[min(values)], expected)

    def _expected(self, key: Key) -> tuple[torch.Tensor | None, str]:
        """The value of the run on one rank, or why there is none."""
        there = key if self.observed is None else self.observed.parameters.key_alone(key)
        record = self.alone.get(there)
        if self.partings.first is not None:
            return None, "the runs part before it"
        if record is None and self.observed is not None:
            record = self.observed.loss_of_another_line(key, 0)
            if isinstance(record, Record):
                return record.value, f"on one rank it {record.missing}"
        if not isinstance(record, Record):
            return None, "the run on one rank does not have it"
        here, alone = self.counts[0][key.source], self.counts[-1][there.source]
        if here != alone:
            self.out_of_step = True
            times = f"it happens {counted(here, 'time')} here and {counted(alone, 'time')} on one rank"
            if key.kind == "gradient":
                self.partings.add(key, times)
            return None, f"{times}, so there is no telling which"
        if key.kind == "trained" and self.tolerance.is_noise(key.name):
            return None, "its gradients are zero but for rounding, which an adaptive optimizer magnifies"
        if self.out_of_step and key.kind == "result":
            return None, "it comes after a loop that runs more often in one run than in the other"
        return record.value, f"on one rank it {record.missing}"

    def _against(
        self,
        first: Record,
        pieces: Mapping[int, torch.Tensor],
        layout: ObservedLayout,
        whole: torch.Tensor,
        expected: torch.Tensor,
    ) -> ValueDisagreement | NotCompared | str:
        key = first.key
        if key.kind == "result" and whole.shape != expected.shape and self._is_padded(whole, expected):
            whole = whole[tuple(slice(length) for length in expected.shape)]
        if whole.shape != expected.shape:
            return self._shapes(first, pieces, whole, expected)
        apart = self._apart(key, (whole, expected, *pieces.values()))
        settled = self.tolerance.settled(key, key.name, whole, expected)
        found = difference(settled, expected, apart, self.tolerance.typical(key, expected))
        if found is None:
            self.layouts.learn(key, first.type, layout, expected)
            return "equal"
        positions = {rank: torch.arange(piece.numel()).view(piece.shape) for rank, piece in pieces.items()}
        owners = {rank: torch.full(piece.shape, rank) for rank, piece in pieces.items()}
        at = found.index
        rank = int(layout.placed(owners)[at])
        flat = layout.placed(positions)[at]
        index = tuple(int(i) for i in torch.unravel_index(flat, pieces[rank].shape))
        ranks = layout.summed_with(rank)
        hint = hint_for(found.factor, found.total, self.axes)
        said = "differs from the run on one rank"
        return ValueDisagreement(key, first.claim, Against.ALONE, rank, ranks, index, at, found, said, hint)

    def _apart(self, key: Key, tensors: Sequence[torch.Tensor], there: Key | None = None) -> float:
        """How far the values of record ``key`` may be apart; ``there`` is its key in the run on one rank."""
        records = [run.get(key) for run in (*self.ranks, self.alone)]
        size = max(one.size for one in records if isinstance(one, Record))
        return self.tolerance.apart(there or key, tensors, size)

    def _shapes(
        self, first: Record, pieces: Mapping[int, torch.Tensor], whole: torch.Tensor, expected: torch.Tensor
    ) -> ValueDisagreement | NotCompared:
        key = first.key
        if key.kind in ("output", "value") and self._is_sized_by_mesh(whole, expected):
            return NotCompared(
                key, first.claim, f"the mesh decides its size: {list(whole.shape)}, {list(expected.shape)} on one"
            )
        together = f"{list(whole.shape)} together, and {list(expected.shape)} on one rank"
        if all(piece.shape == expected.shape for piece in pieces.values()):
            if self.partings.grows(pieces, expected) or not all(is_same(piece, expected) for piece in pieces.values()):
                self.partings.add(key, f"on every rank the tensor is as large as on one: {together}")
                return NotCompared(key, first.claim, GROWS)
            said = f"is {together}: every rank has the whole, and not a shard of it"
        else:
            said = f"is {together}"
        return ValueDisagreement(key, first.claim, Against.SHAPE, 0, tuple(pieces), (), (), None, said)

    def _is_padded(self, whole: torch.Tensor, expected: torch.Tensor) -> bool:
        """Is it longer by less than an element a rank, as what is cut into equal parts is?"""
        extra = [here - there for here, there in zip(whole.shape, expected.shape, strict=False)]
        return whole.ndim == expected.ndim and all(0 <= each < len(self.ranks) for each in extra)

    def _is_sized_by_mesh(self, whole: torch.Tensor, expected: torch.Tensor) -> bool:
        """Has it an element for every rank, or every rank along an axis, where it has one on one rank?"""
        sizes = {len(self.ranks), *(axis.size() for axis in self.axes)}
        pairs = zip(whole.shape, expected.shape, strict=False)
        return whole.ndim == expected.ndim and all(
            here == there or (there == 1 and here in sizes) for here, there in pairs
        )

    def _unequal(
        self, first: Record, pieces: Mapping[int, torch.Tensor], error: Unequal, place: str
    ) -> ValueDisagreement:
        return self._differ(first, pieces, error.base, error.rank, f"is claimed to be {place}")

    def _differ(
        self, first: Record, pieces: Mapping[int, torch.Tensor], base: int, rank: int, claim: str
    ) -> ValueDisagreement:
        one, other = pieces[base], pieces[rank]
        said = f"{claim}, but rank {rank} differs from rank {base}"
        if one.shape != other.shape:
            said += f": {list(other.shape)} and {list(one.shape)}"
            return ValueDisagreement(first.key, first.claim, Against.RANKS, rank, (base, rank), (), (), None, said)
        found = difference(other, one, 0.0)
        index = () if found is None else found.index
        return ValueDisagreement(first.key, first.claim, Against.RANKS, rank, (base, rank), index, index, found, said)

    def _guess(
        self,
        first: Record,
        pieces: Mapping[int, torch.Tensor],
        type: TensorType,
        expected: torch.Tensor,
        checked: str | None,
    ) -> NotCompared | str:
        """Without a word on how pieces combine, a way that gives the right value is believed; none is no mistake."""
        key = first.key
        apart = self._apart(key, (expected, *pieces.values()))
        for layout in observed_layouts(pieces, type.axes, expected, apart, said=type):
            self.layouts.learn(key, type, layout, expected)
            return "equal"
        return checked or self._unsaid(first, loose_axes(type))

    def _unsaid(self, first: Record, loose: Sequence[object]) -> NotCompared:
        what = f"it varies over {', '.join(map(self._name, loose))}" if loose else "it is not fully typed"
        return NotCompared(first.key, first.claim, f"{what}: nothing says how the ranks' tensors combine")

    def _name(self, axis: object) -> str:
        return self.axes.get(axis, repr(axis))


def _by_key(run: RankRun) -> dict[Key, Record | Draw]:
    return {entry.key: entry for entry in run.entries}


def _counts(run: RankRun) -> Counter[Key]:
    return Counter(entry.key.source for entry in run.entries)


def _place_on(type: TensorType, axis: object, names: Mapping[object, str]) -> str:
    return f"{type.get(axis)!r} over {names.get(axis, repr(axis))}"
