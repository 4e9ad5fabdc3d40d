"""What a rank tells of its tensors instead of handing them over: a digest, and where they lie in the run on one rank.

Every copy is compared with the reference as it is made. One that is a piece of the reference bit by bit is dropped; one
that is a piece but for rounding is kept as long as there is room, and only sent if another rank holds other bits at the
same place; what is no piece of it (addends, and what is wrong) is kept and sent when it is asked for.

    rank 1 of tp=2, weight [4, 8] of [8, 8]     digest 16 bytes, place rows 4 to 8: nothing else travels
    its gradient, 3 times too large             digest, no place: rank 0 asks for it
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shardwise.interop.running.recording import Draw, Key, Record, Recorder, has_values
from shardwise.interop.tensors.bits import bytes_of, digest_of, tensor_of
from shardwise.interop.torch_compat import no_torch_function, tree_leaves
from shardwise.types.tensor_type import TensorType

from ..distance.difference import scale_of, tolerance_of
from ..distance.tolerance import TRAINED
from ..layouts.observed_parameters import OF_PARAMETERS
from ..layouts.places import Place, place_of, taken
from ..records.batches import Batches
from ..records.record import RankRun

SMALL_BYTES = 4096
"""Tensors up to this size are told with their digest, unless they are pieces of the reference bit by bit."""
KEPT_BYTES = 1 << 29
"""How much of its own copies a rank keeps for questions."""
ASKED_BYTES = 1 << 28
"""How much rank 0 asks for in all."""
NOT_KEPT = f"is no piece of the reference, and comes after the first {KEPT_BYTES >> 20} MiB of such tensors"
NOT_ASKED = f"is no piece of the reference, and comes after the first {ASKED_BYTES >> 20} MiB that are asked for"


Entries = tuple[Record | Draw, ...]
Written = tuple[torch.dtype, tuple[int, ...], bytes]
"""A tensor as plain bytes: equal tensors are written alike, which pickled ones are not."""


@dataclass(frozen=True, slots=True)
class TensorTrace:
    """What is told of one tensor.

    ``there``  the record of the reference in which it lies, at ``place``; None if it lies in none.
    ``exact``  it is that piece bit by bit.
    ``value``  the tensor, if it is small; ``kept`` whether it can be asked for.
    """

    digest: bytes
    nbytes: int
    there: Key | None = None
    place: Place | None = None
    exact: bool = False
    value: Written | None = None
    kept: bool = False


def digests(batches: Batches) -> Batches:
    """The same with a digest in place of every batch: enough to count them, and to tell equal ones."""
    drawn = {epoch: [_digest_of_batch(batch) for batch in given] for epoch, given in batches.drawn.items()}
    return replace(batches, drawn=drawn)


def _digest_of_batch(batch: object) -> str:
    leaves = tree_leaves(batch)
    told = [digest_of(leaf) if isinstance(leaf, torch.Tensor) else repr(leaf).encode() for leaf in leaves]
    return hashlib.blake2b(b"\0".join(told), digest_size=16).hexdigest()


def _read(written: Written) -> torch.Tensor:
    dtype, shape, data = written
    return tensor_of(data, dtype, shape)


class TracingRecorder(Recorder):
    """Records traces of tensors in place of tensors.

    ``traces``  by the number of the entry; ``kept`` the copies that can be asked for, likewise.
    """

    def __init__(self, reference: Iterable[Record | Draw], rtol: float | None) -> None:
        super().__init__()
        self._whole = {entry.key: entry for entry in reference if isinstance(entry, Record) and entry.value is not None}
        self._named: dict[tuple[str, int], list[Key]] = {}
        for key in self._whole:
            self._named.setdefault((key.kind, key.nth), []).append(key)
        self._rtol = rtol
        self._found: dict[str, tuple[str, Place]] = {}
        """Where the tensors of a parameter have been found: under which name, and at which place."""
        self._last: torch.Tensor | None = None
        self.traces: dict[int, TensorTrace] = {}
        self.kept: dict[int, torch.Tensor] = {}
        self.kept_bytes = self.most_bytes = 0

    @property
    def latest(self) -> torch.Tensor | None:
        """The value of the record that was added last."""
        return self._last

    def add(self, kind: str, name: str, x: torch.Tensor, type: TensorType, location: Any, **options: Any) -> Record:
        """Record a trace of ``x``."""
        record = super().add(kind, name, x, type, location, **options)
        at = len(self.entries) - 1
        value, record.value = record.value, None
        self._last = value
        if value is None:
            return record
        with no_torch_function(), torch.no_grad():
            self.most_bytes = max(self.most_bytes, self.kept_bytes + value.nbytes)
            trace = self._traced(record.key, value)
            if not trace.exact and trace.value is None:
                trace = self._keep(at, record, value, trace)
            self.traces[at] = trace
        return record

    def _copy(self, x: torch.Tensor) -> tuple[torch.Tensor | None, str]:
        if not has_values(x):
            return None, "is not a dense tensor of values"
        with no_torch_function(), torch.no_grad():
            return x.detach().clone().resolve_conj().resolve_neg().cpu(), ""

    def _keep(self, at: int, record: Record, value: torch.Tensor, trace: TensorTrace) -> TensorTrace:
        if self.kept_bytes + value.nbytes <= KEPT_BYTES:
            self.kept[at] = value
            self.kept_bytes += value.nbytes
            return replace(trace, kept=True)
        if trace.place is None:
            record.missing = NOT_KEPT
        return trace

    def _traced(self, key: Key, value: torch.Tensor) -> TensorTrace:
        """What is told of ``value``."""
        trace = self._placed(key, value)
        if value.nbytes > SMALL_BYTES or trace.exact:
            return trace
        return replace(trace, value=(value.dtype, tuple(value.shape), bytes_of(value)))

    def _placed(self, key: Key, value: torch.Tensor) -> TensorTrace:
        digest = digest_of(value)
        for there, first in self._likely(key):
            whole = self._whole[there].value
            assert whole is not None, "only records with values are looked at"
            rtol = tolerance_of([value.dtype]) if self._rtol is None else self._rtol
            if key.kind == "trained" and self._rtol is None:
                rtol = min(rtol * TRAINED, 1.0)
            place = place_of(value, whole, rtol * scale_of(value), first)
            if place is not None:
                self._found[key.name] = (there.name, place)
                exact = torch.equal(taken(whole, place), value)
                return TensorTrace(digest, value.nbytes, there, place, exact)
        return TensorTrace(digest, value.nbytes)

    def _likely(self, key: Key) -> Iterable[tuple[Key, Place | None]]:
        """The records of the reference in which the tensor may lie: of its name, else of any, for a rank may count its
        layers from its own first one."""
        name, place = self._found.get(key.name, (key.name, None))
        own = replace(key, name=name)
        if own in self._whole:
            yield own, place
        elif key in self._whole:
            yield key, None
        if key.kind == "parameter" and key.name not in self._found:
            for other in self._named.get((key.kind, key.nth), ()):
                if other != key:
                    yield other, None


@dataclass
class Told:
    """What a rank tells of its run: the entries without values, and the traces of those that have one."""

    run: RankRun
    traces: dict[int, TensorTrace]
    most_bytes: int = 0

    def parts(self) -> tuple[Entries, Mapping[int, TensorTrace], Told]:
        """The entries, the traces of parameters, and the rest: the first two are the same on many ranks."""
        kept = {at: trace for at, trace in self.traces.items() if self.run.entries[at].key.kind in OF_PARAMETERS}
        rest = {at: trace for at, trace in self.traces.items() if at not in kept}
        return tuple(self.run.entries), kept, Told(replace(self.run, entries=[]), rest, self.most_bytes)


def whole_of(parts: Iterable[tuple[Entries, Mapping[int, TensorTrace], Told]]) -> list[Told]:
    """What was told in these parts; entries that are the same on several ranks are one object."""
    known: dict[tuple[int, int], list[Record | Draw]] = {}
    whole = []
    for entries, kept, told in parts:
        common = known.setdefault((id(entries), id(kept)), [copy.copy(entry) for entry in entries])
        own = [copy.copy(entry) if at in told.traces else entry for at, entry in enumerate(common)]
        whole.append(Told(replace(told.run, entries=own), {**kept, **told.traces}, told.most_bytes))
    return whole


Ask = Callable[[int, int], torch.Tensor]
"""Of a rank, and of the number of an entry: the copy that it keeps."""


@dataclass
class Rebuilt:
    """The runs of all ranks as if they had handed over everything.

    ``asked``, ``asked_bytes``  how many tensors had to be asked for, and how large they were.
    """

    runs: list[RankRun]
    asked: int = 0
    asked_bytes: int = 0


def rebuilt(told: Sequence[Told], reference: Iterable[Record | Draw], ask: Ask) -> Rebuilt:
    """The runs whose traces these are, in rank order; a piece of the reference stands for every tensor that is one.

    Ranks with other bits at the same place are asked for them: where they should be equal, that is a disagreement.
    """
    whole = {entry.key: entry.value for entry in reference if isinstance(entry, Record)}
    made = Rebuilt([one.run for one in told])
    at_place: dict[tuple[Any, ...], set[bytes]] = {}
    for one in told:
        for at, trace in one.traces.items():
            if trace.place is not None:
                at_place.setdefault((one.run.entries[at].key, trace.there, trace.place), set()).add(trace.digest)
    values: dict[tuple[Key, bytes], torch.Tensor] = {}
    for rank, one in enumerate(told):
        for at, trace in one.traces.items():
            record = one.run.entries[at]
            assert isinstance(record, Record), "only records have traces"
            if record.value is not None:
                continue  # of a rank that has told the same
            known = values.get((record.key, trace.digest))
            if known is None:
                several = len(at_place.get((record.key, trace.there, trace.place), ())) > 1
                known = _value(record, trace, whole, made, several, lambda rank=rank, at=at: ask(rank, at))  # type: ignore[misc]
                if known is None:
                    continue
                values[record.key, trace.digest] = known
            record.value, record.missing = known, ""
    return made


def _value(
    record: Record,
    trace: TensorTrace,
    whole: Mapping[Key, torch.Tensor | None],
    made: Rebuilt,
    several: bool,
    ask: Callable[[], torch.Tensor],
) -> torch.Tensor | None:
    """The tensor that ``trace`` tells of; None, with the reason in ``record``, if it cannot be had."""
    if trace.value is not None:
        return _read(trace.value)
    there = None if trace.there is None else whole.get(trace.there)
    if there is not None and trace.place is not None and (trace.exact or not several):
        return taken(there, trace.place)
    if not trace.kept:
        record.missing = record.missing or "differs in its last bits between ranks that were not kept"
        return None
    if made.asked_bytes + trace.nbytes > ASKED_BYTES:
        record.missing = NOT_ASKED
        return None
    made.asked += 1
    made.asked_bytes += trace.nbytes
    return ask()
