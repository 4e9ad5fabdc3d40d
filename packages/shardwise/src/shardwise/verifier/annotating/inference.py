"""Types that are true of a program's values: of parameters, buffers, inputs and what modules give, found by running it.

The ranks of a mesh hold pieces, copies or addends of what one rank holds; which of these is what the values show. R
and I hold equal values, and differ in the gradients that backward computes: for R addends of the gradient of one rank,
for I equal to it.

    ranks of tp=2 hold [[1, 2]] and [[3, 4]], one rank holds [[1, 2], [3, 4]]            tp: S(0)
    all ranks hold 5, and compute gradients 1 and 2 where one rank computes 3            tp: R
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import Along, ObservedLayout, Way, observed_layouts
from shardwise.oracle.reassemble import Grid

from ..distance.difference import scale_of, tolerance_of
from ..layouts.alignment import Alignment, is_equal_along, varying
from ..layouts.local_training import averaged_steps, copies_apart, trained_apart
from ..layouts.micro_batches import MicroBatches
from ..records.failure import Failure
from ..records.record import RankRun

KINDS = ("parameter", "buffer", "input", "module")


@dataclass(frozen=True)
class InferredType:
    """What some ranks hold under one name.

    ``kind``       parameter, buffer, input, or module for what a module gives.
    ``ranks``      which hold it.
    ``there``      what it is called on one rank.
    ``shape``      of the first rank's tensor.
    ``axes``       what it is over each axis along which several ranks hold it, as types are written; None if no
                   layout explains the values.
    ``known_by``   for each axis how that is known.
    ``otherwise``  other types that the values leave possible, written like ``axes``.
    ``merged``     along some axis a piece of every part: dims were merged of which an inner one is cut.
    ``kept_out``   why no annotation should say it; empty if one should.
    ``dealt_out``  its samples are those of one rank, in whichever order.
    """

    kind: str
    name: str
    ranks: tuple[int, ...]
    there: str
    shape: tuple[int, ...]
    axes: Mapping[str, str] | None
    known_by: Mapping[str, str]
    otherwise: tuple[Mapping[str, str], ...] = ()
    merged: bool = False
    dealt_out: bool = False
    kept_out: str = ""

    def renamed(self, names: Mapping[str, str]) -> InferredType:
        """The same with other names for the axes."""

        def own(axes: Mapping[str, str]) -> dict[str, str]:
            return {names.get(axis, axis): text for axis, text in axes.items()}

        axes = None if self.axes is None else own(self.axes)
        return replace(self, axes=axes, known_by=own(self.known_by), otherwise=tuple(map(own, self.otherwise)))


@dataclass(frozen=True)
class Inference:
    """The types of a program on a mesh; ``failure`` says why there are none."""

    program: str
    mesh: str
    ranks: int
    types: tuple[InferredType, ...] = ()
    failure: Failure | None = None

    @property
    def unexplained(self) -> tuple[InferredType, ...]:
        """The parameters, buffers and inputs whose values no layout explains; tokens may be dealt out as they like."""
        return tuple(one for one in self.types if one.axes is None and one.kind != "module")


def inferred_types(ranks: Sequence[RankRun], alone: RankRun, mesh: Mapping[str, int]) -> Iterator[InferredType]:
    """The types of everything that was recorded first under its name, in program order.

    ``ranks``  what every rank recorded, in rank order, with layouts; ``alone`` the same of one rank.
    ``mesh``   sizes of the axes, outermost first.
    """
    yield from _Inferring(ranks, alone, mesh).types()


class _Inferring:
    """The runs side by side, and what is known of them as a whole."""

    def __init__(self, ranks: Sequence[RankRun], alone: RankRun, mesh: Mapping[str, int]) -> None:
        self._grid = Grid.of(mesh)
        self._runs, self._one = [_Values(run) for run in ranks], _Values(alone)
        *entries, there = [{entry.key: entry for entry in run.entries} for run in (*ranks, alone)]
        self._batches = MicroBatches(entries, there, [run.steps for run in (*ranks, alone)])
        self._aligned = {
            kind: Alignment(self._grid, [run.of(kind) for run in self._runs], self._one.of(kind)) for kind in KINDS[:2]
        }
        parameters = self._aligned["parameter"]
        talking = any(run.talking_steps for run in ranks)
        self._apart = trained_apart(entries, parameters) | copies_apart(entries, there)
        self._apart |= averaged_steps(entries, there, parameters, talking=talking)
        self._cut = False
        """An input before was a part of that of one rank, in the same call: micro-batches are the same."""

    def types(self) -> Iterator[InferredType]:
        for kind, name in dict.fromkeys(which for run in self._runs for which in run.named(KINDS)):
            pieces = {rank: x for rank, run in enumerate(self._runs) if (x := run.of(kind).get(name)) is not None}
            whole, shape = self._one.of(kind).get(name), pieces[min(pieces)].shape
            found = self._layouts_of(kind, name, pieces, whole)
            if kind == "input":
                self._cut |= any(step.way is not Way.EQUAL for *_, ways in found for step in ways[0].steps)
            if found:
                yield from (self._type(kind, name, pieces, *one) for one in found)
            elif kind == "input" and self._batches.explain(self._runs[min(pieces)].key(kind, name)):
                one_by_one = self._cut and whole is not None and whole.shape == shape
                yield _dealt_out(name, pieces, self._grid, one_by_one=one_by_one)
            elif kind != "module" or not self._batches.regrouped:  # else of other samples than on one rank
                yield InferredType(kind, name, tuple(pieces), name, tuple(shape), None, {})

    def _layouts_of(
        self, kind: str, name: str, pieces: Mapping[int, torch.Tensor], whole: torch.Tensor | None
    ) -> list[tuple[tuple[int, ...], str, tuple[ObservedLayout, ...]]]:
        """Which ranks hold it, what it is called on one rank, and the layouts that are true of the values."""
        if kind in ("input", "module"):
            layouts = () if whole is None else tuple(_layouts(pieces, self._grid, whole))
            return [(tuple(pieces), name, layouts)] if layouts else []
        found = [(one.ranks, one.name, one.layouts) for one in self._aligned[kind].of(name)]
        axes = self._grid.axes.values()
        # Of copies on some ranks of an axis no type along that axis says so.
        of_parts = any(step.axis not in axes for *_, layouts in found for step in layouts[0].steps)
        return [] if of_parts else found

    def _type(
        self,
        kind: str,
        name: str,
        pieces: Mapping[int, torch.Tensor],
        having: tuple[int, ...],
        there: str,
        layouts: tuple[ObservedLayout, ...],
    ) -> InferredType:
        raw = {rank: self._runs[rank].computed(name) for rank in having}
        ways = _gradient_ways(raw, self._grid, self._one.computed(there), layouts[0])
        shape = tuple(pieces[min(pieces)].shape)
        told = _described(kind, name, having, there, shape, layouts, ways, self._grid)
        if kind == "parameter" and name in self._apart:
            return _varying(told, layouts[0], self._grid)
        if kind == "parameter" and any(step.way is Way.EQUAL for step in layouts[0].steps):
            owned = _is_owned([self._runs[rank].gradient(name) for rank in having])
            return replace(told, kept_out=_OWNED if owned else "")
        if kind == "buffer" and not any(value.any() for value in pieces.values()):
            return replace(told, kept_out=_ZEROS)
        return told


def _dealt_out(name: str, pieces: Mapping[int, torch.Tensor], grid: Grid, *, one_by_one: bool) -> InferredType:
    """An input whose samples are those of one rank, in other micro-batches.

    ``one_by_one``  no micro-batches, but what is called for each sample of a batch: no dim is cut, the calls are.
    """
    axes, known_by = {}, {}
    names = {axis: called for called, axis in grid.axes.items()}
    for axis in varying(grid, tuple(pieces)):
        equal = is_equal_along(pieces, axis)
        axes[names[axis]] = "R" if equal else "V" if one_by_one else "S(0)"
        known_by[names[axis]] = "equal on the ranks" if equal else _CALLS if one_by_one else _SAMPLES
    shape = tuple(pieces[min(pieces)].shape)
    kept_out = _ONE_BY_ONE if "V" in axes.values() else ""
    return InferredType("input", name, tuple(pieces), name, shape, axes, known_by, dealt_out=True, kept_out=kept_out)


class _Values:
    """The first value of every name, by kind."""

    def __init__(self, run: RankRun) -> None:
        self._values: dict[str, dict[str, torch.Tensor]] = {}
        self._computed: dict[str, list[torch.Tensor]] = {}
        for entry in run.entries:
            if isinstance(entry, Record) and entry.value is not None:
                self._values.setdefault(entry.key.kind, {}).setdefault(entry.key.name, entry.value)
                if entry.key.kind == "computed":
                    self._computed.setdefault(entry.key.name, []).append(entry.value)
        self._keys: list[Key] = [entry.key for entry in run.entries]
        entered = [one for one in run.entries if isinstance(one, Record) and one.key.kind == "gradient"]
        self._gradients = {one.key.name: one for one in reversed(entered)}

    def key(self, kind: str, name: str) -> Key:
        """Of the first record of this name."""
        return next(key for key in self._keys if (key.kind, key.name) == (kind, name))

    def computed(self, name: str) -> Sequence[torch.Tensor]:
        """Its gradients as backward has computed them, one after the other."""
        return self._computed.get(name, ())

    def gradient(self, name: str) -> Record | None:
        """The first that has entered a step under this name."""
        return self._gradients.get(name)

    def of(self, kind: str) -> Mapping[str, torch.Tensor]:
        return self._values.get(kind, {})

    def named(self, kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
        return ((key.kind, key.name) for key in self._keys if key.kind in kinds and key.name in self.of(key.kind))


def _is_owned(gradients: Sequence[Record | None]) -> bool:
    """Do some of the ranks that hold a parameter step it, with gradients that others do not have?"""
    stepped = [one for one in gradients if one is not None and not one.unused and one.value is not None]
    if not stepped:
        return False
    first = stepped[0].value
    assert first is not None, "those without a value are left out"
    return any(
        one is None or (one.unused and (one.value is None or not torch.equal(one.value, first))) for one in gradients
    )


def _layouts(pieces: Mapping[int, torch.Tensor], grid: Grid, whole: torch.Tensor) -> Iterator[ObservedLayout]:
    axes = varying(grid, tuple(pieces))
    apart = tolerance_of([whole.dtype]) * scale_of(whole, *pieces.values())
    return observed_layouts(pieces, axes, whole, apart)


def _gradient_ways(
    pieces: Mapping[int, Sequence[torch.Tensor]],
    grid: Grid,
    whole: Sequence[torch.Tensor],
    layout: ObservedLayout,
) -> dict[MeshAxis, set[Way]]:
    """Over each axis over which the parameter is equal: how the computed gradients combine to that of one rank, each
    time that it was computed. ``pieces``: those of every rank that holds it.

    Gradients of which all elements are as large, or zero, tell nothing: where a loss is clipped, every rank's are alike
    by accident.
    """
    ways: dict[MeshAxis, set[Way]] = {}
    sizes = torch.cat([x[x != 0].abs() for x in whole]) if whole else torch.zeros(0)
    if not all(pieces.values()) or not sizes.numel() or bool((sizes == sizes[0]).all()):
        return ways
    alike = {len(each) for each in pieces.values()} == {len(whole)}  # else there are other micro-batches here and there
    for one, *each in zip(whole if alike else whole[:1], *pieces.values(), strict=False):
        for axis, found in _ways_once(dict(zip(pieces, each, strict=True)), grid, one, layout).items():
            ways[axis] = ways.get(axis, found) & found
    return ways


def _ways_once(
    pieces: Mapping[int, torch.Tensor], grid: Grid, whole: torch.Tensor, layout: ObservedLayout
) -> dict[MeshAxis, set[Way]]:
    """The same of one time.

    Two axes of two ranks: a mean over one of the sum over the other of equal tensors is a sum over the one as well. The
    plainest says how it is, that with equal tensors over the most axes.
    """
    ways: dict[MeshAxis, set[Way]] = {}
    if not whole.any():
        return ways
    own = {step.axis: step for step in layout.steps}
    fitting = [
        [step for step in candidate.steps if own[step.axis].way is Way.EQUAL]
        for candidate in _layouts(pieces, grid, whole)
        if all(step == own[step.axis] or own[step.axis].way is Way.EQUAL for step in candidate.steps)
    ]
    plainest = max((_equal(steps) for steps in fitting), default=0)
    for step in (step for steps in fitting if _equal(steps) == plainest for step in steps):
        ways.setdefault(step.axis, set()).add(step.way)
    return ways


def _equal(steps: Sequence[Along]) -> int:
    return sum(step.way is Way.EQUAL for step in steps)


def _described(
    kind: str,
    name: str,
    ranks: tuple[int, ...],
    there: str,
    shape: tuple[int, ...],
    layouts: Sequence[ObservedLayout],
    ways: Mapping[MeshAxis, set[Way]],
    grid: Grid,
) -> InferredType:
    names = {axis: called for called, axis in grid.axes.items()}
    written: list[dict[str, str]] = []
    known_by: dict[str, str] = {}
    for layout in layouts:
        one: dict[str, str] = {}
        for step in sorted(layout.steps, key=lambda step: list(names).index(step.axis)):
            place, how = _place(step, ways.get(step.axis, set()), kind)
            if layout.shape and step.way is not Way.EQUAL:
                place, how = "V", _FLAT  # the wrapper's flat parameter is cut, and not the parameter
            one[names[step.axis]] = place
            known_by.setdefault(names[step.axis], how)
        if one not in written:
            written.append(one)
    first, *others = written
    merged = any(step.way is Way.MERGED for layout in layouts[:1] for step in layout.steps)
    return InferredType(kind, name, ranks, there, shape, first, known_by, tuple(others), merged)


def _varying(told: InferredType, layout: ObservedLayout, grid: Grid) -> InferredType:
    """A parameter that every rank trains on its own data between averages: it varies, though it starts alike."""
    names = {axis: called for called, axis in grid.axes.items()}
    drifting = [names[step.axis] for step in layout.steps if step.way is Way.EQUAL]
    axes = {**(told.axes or {}), **dict.fromkeys(drifting, "V")}
    return replace(
        told, axes=axes, known_by={**told.known_by, **dict.fromkeys(drifting, _APART)}, otherwise=(), kept_out=_BETWEEN
    )


_BETWEEN = "each rank trains it on its own between averages, so that no type holds all the time"
_ZEROS = "it is zeros, which fit any type: what it becomes follows from what is put in"
_OWNED = "not every rank that holds it steps it: until it is sent to the others again, they do not hold the same"
_APART = "equal on the ranks before the first step and at the end, and trained by each on its own data in between"
_SAMPLES = "the samples of a step, of all its micro-batches, are those of the run on one rank"
_CALLS = "the calls of a step are those of the run on one rank, of which each rank makes its own"
_ONE_BY_ONE = "it is called for one sample after the other, of which each rank has its own"
_FLAT = "a part of the flattened parameter, as wrappers that flatten parameters keep them"
_PIECES = {
    Way.SHARD: "the ranks' pieces, one after the other, are the whole",
    Way.STRIDED: "the ranks' pieces, dealt out element by element, are the whole",
    Way.MERGED: "the ranks' pieces, cut into parts that are joined one by one, are the whole",
    Way.EXCHANGED: "the ranks' pieces, in another order than that of the ranks, are the whole",
    Way.FOLDED: "the first halves of the ranks' pieces, then the second from the last rank to the first, are the whole",
}


def _place(step: Along, gradients: set[Way], kind: str) -> tuple[str, str]:
    """How the type over an axis is written, and how it is known."""
    match step.way:
        case Way.SHARD | Way.STRIDED | Way.MERGED | Way.FOLDED | Way.EXCHANGED:
            return f"S({step.dim})", _PIECES[step.way]
        case Way.SUM:
            return "P", "the ranks' tensors add up to the whole"
        case Way.MEAN:
            return 'P("avg")', "the mean of the ranks' tensors is the whole"
    if kind != "parameter":
        return "R or I" if kind == "module" else "R", "equal on the ranks"
    if gradients == {Way.EQUAL}:
        return "I", "equal on the ranks, and so are the gradients that backward computes"
    if gradients and Way.EQUAL not in gradients:
        what = "addends" if Way.SUM in gradients else "terms of a mean"
        return "R", f"equal on the ranks; the gradients that backward computes are {what}"
    return "R or I", "equal on the ranks; no gradient tells which"
