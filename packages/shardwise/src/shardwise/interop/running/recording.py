"""What is remembered of one rank's run while ``shardwise verify`` records it: tensors that say what they are.

The same program running on another rank, or alone, records the same tensors under the same keys: by the location in the
source, or by the parameter's name, and by number where it happens several times. One slot holds the recorder; without
one, ``named`` and ``declared`` are a test of that slot.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import torch

from shardwise.diagnostics.printing.printable import safe_str
from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.types.aliases import Axis
from shardwise.types.tensor_type import UNTYPED, Ground, TensorType

from ..tensors.local_form import local_form
from ..tensors.tagging import typed_shape
from ..torch_compat import is_fake, is_transformed, no_torch_function

KIND_OF = {
    "declared": "{name}",
    "value": "value {name}",
    "result": "result of {name}",
    "loss": "loss",
    "gradient": "gradient of {name}",
    "left": "gradient of {name} at the end",
    "parameter": "parameter {name} before the first step",
    "trained": "parameter {name} after the last step",
    "updated": "parameter {name} after step",
    "output": "output{name}",
    "read": "the number read here",
    "clip": "the factor by which gradients are clipped{name}",
    "input": "input {name}",
    "data": "the data used here",
    "module": "output of {name}",
    "evaluation": "output of {name}",
    "buffer": "buffer {name}",
    "computed": "gradient of {name} as backward computes it",
}
"""The kinds of records, and what a record is called in a report."""
IN_EVALUATION = " in evaluation"
"""What follows the name of a module that is called without gradients."""
LIMIT_BYTES = 1 << 29
"""How much one rank keeps; what comes later is listed as not comparable."""
_DENSE_BYTES = 1 << 24
"""A sparse tensor of at most as many bytes is kept as a dense one."""


@dataclass(frozen=True, slots=True)
class Key:
    """What identifies a record in every run: ``nth`` counts from 1 among those of one kind, name and location."""

    kind: str
    name: str
    location: SourceLocation | None
    nth: int = 1

    @property
    def source(self) -> Key:
        """The key without its number: what is repeated when the record is one of several."""
        return Key(self.kind, self.name, self.location)

    def __str__(self) -> str:
        return KIND_OF[self.kind].format(name=self.name).replace("parameter parameter ", "parameter ")


@dataclass(frozen=True, slots=True)
class HeldElements:
    """Which elements of a tensor of ``shape`` a rank has: these ranges of it flattened, one after the other."""

    shape: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """How many elements the whole tensor has."""
        return math.prod(self.shape)


@dataclass(slots=True)
class Record:
    """One tensor of one rank.

    ``claim``    the typed shape as the rank prints it, with the axes' names; where nothing is known, without a type.
    ``value``    a copy; None if there was nothing to copy, and then ``missing`` says why.
    ``owing``    the other type that it may have: of a gradient that may not have been summed yet.
    ``size``     the largest element of what it was computed from, where that says how far rounding may reach.
    ``held``     which elements ``value`` is, where it is not the whole of what the rank has the name for.
    ``unused``   a gradient that this rank's step leaves to others: it need not be what theirs is.
    ``digest``   of the values of the parameter that a gradient enters a step with, or that is there at the end.
    ``use``      of the parameter whose gradient it is, where that was watched.
    """

    key: Key
    type: TensorType
    claim: str
    value: torch.Tensor | None
    missing: str = ""
    owing: TensorType | None = None
    size: float = 0.0
    held: HeldElements | None = None
    unused: bool = False
    use: Use | None = None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Use:
    """Where a program first uses a parameter in a step; ``order`` counts such uses, which backward meets in reverse."""

    order: int
    location: SourceLocation | None


@dataclass(frozen=True, slots=True)
class Draw:
    """Random numbers were drawn: equal draws have equal ``state`` of the generator before, and equal ``shape``.

    ``seeded``  somebody has seeded the generator; else its numbers are equal on all ranks by accident.
    ``given``   they are those that the ranks of the mesh drew.
    """

    key: Key
    state: bytes
    shape: tuple[int, ...]
    seeded: bool = True
    given: bool = False


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What a step of an optimizer is taken with.

    ``optimizer``  which one, in the order of their first steps; ``step`` its how manieth, from 0.
    ``values``     numbers by name, of each of its groups: learning rate, momentum, weight decay.
    """

    optimizer: int
    step: int
    location: SourceLocation | None
    values: tuple[Mapping[str, float], ...]


class Recorder:
    """Takes copies of the tensors that it is told of.

    ``entries``  records and draws in program order.
    ``axes``     names of mesh axes as the program calls them.
    ``dtypes``   the floating-point dtypes of what was computed and has a gradient.
    ``steps``    how many entries there were before each optimizer step.
    ``untrained``   names of parameters that an optimizer has, that require a gradient, and have never had one.
    ``narrow_sums`` sums over ranks in a narrow dtype that would be refused elsewhere, in words.
    ``scale_free``  an optimizer has stepped whose steps may not depend on how large gradients are.
    ``talking_steps``  an optimizer's step has issued collectives.
    ``settings``  what each optimizer step was taken with.
    ``divisors``  what each loss was divided by on this rank, where its graph tells.
    ``data_parallel``  a module is wrapped so that several ranks share out the data.
    ``convolves``  the program convolves what has gradients.
    ``leaves``   tensors for which gradients may be computed, and where they were declared.
    """

    takes_copies = True
    """False of one that hears what is declared, and keeps nothing."""

    def __init__(self) -> None:
        self.entries: list[Record | Draw] = []
        self.axes: dict[Axis, str] = {}
        self.dtypes: set[torch.dtype] = set()
        self.steps: list[int] = []
        self.leaves: list[tuple[torch.Tensor, SourceLocation | None]] = []
        self.untrained: list[str] = []
        self.narrow_sums: dict[str, None] = {}
        self.scale_free = False
        self.talking_steps = False
        self.settings: list[StepSettings] = []
        self.divisors: dict[Key, float] = {}
        self.data_parallel = False
        self.convolves = False
        self._counts: Counter[Key] = Counter()
        self._bytes = 0

    def hear(self, kind: str, name: str, x: object) -> None:
        """``x``, if it is a tensor, is of this kind and has its type on it; the location is the program's own."""
        if isinstance(x, torch.Tensor):
            location = user_location(2)
            local, type = local_form(x)
            self.add(kind, name, local, type, location)
            with no_torch_function():
                if x.is_leaf and x.requires_grad:
                    self.leaves.append((x, location))

    def placed_alike(self, x: torch.Tensor, axes: Sequence[object], by: str) -> None:
        """What ``by`` takes ``x`` for, which is of concern where ranks run side by side."""

    def stepped(self, step: str, operands: Iterable[tuple[str, torch.Tensor]]) -> None:
        """What an optimizer takes, which is of concern where ranks run side by side."""

    def overwritten(self, tensors: Iterable[torch.Tensor]) -> None:
        """What a library has received into these, in C++: copies are taken where values are used."""

    def add(
        self,
        kind: str,
        name: str,
        x: torch.Tensor,
        type: TensorType,
        location: SourceLocation | None,
        *,
        owing: TensorType | None = None,
        size: float = 0.0,
        keep: bool = True,
        held: HeldElements | None = None,
    ) -> Record:
        """Record ``x`` as being of ``type``; with ``keep`` unset, only that there was such a tensor."""
        key = self._numbered(Key(kind, name, location))
        value, missing = self._copy(x) if keep else (None, "has no type")
        for axis in type.axes:
            self.axes.setdefault(axis, repr(axis))
        claim = str(typed_shape(x, type)).removesuffix(f" {Ground.UNKNOWN.value}")  # which nobody claims
        record = Record(key, type, claim, value, missing, owing, size, held)
        self.entries.append(record)
        return record

    def drawn(
        self, location: SourceLocation | None, op: str, state: bytes, shape: tuple[int, ...], seeded: bool
    ) -> Draw:
        """``op`` has drawn random numbers from a generator that was in ``state``."""
        draw = Draw(self._numbered(Key("drawn", op, location)), state, shape, seeded)
        self.entries.append(draw)
        return draw

    def was_given(self, draw: Draw) -> None:
        """The numbers of this draw are those of the ranks."""
        at = next(at for at in range(len(self.entries) - 1, -1, -1) if self.entries[at] is draw)
        self.entries[at] = replace(draw, given=True)

    def forget(self, names: Set[str]) -> None:
        """What is recorded of parameters of these names is of none."""
        others = [
            isinstance(entry, Record) and entry.key.kind in ("parameter", "updated") and entry.key.name in names
            for entry in self.entries
        ]
        self.steps[:] = [at - sum(others[:at]) for at in self.steps]
        self.entries[:] = [entry for entry, left_out in zip(self.entries, others, strict=True) if not left_out]

    def _numbered(self, key: Key) -> Key:
        self._counts[key] += 1
        return Key(key.kind, key.name, key.location, self._counts[key])

    def _copy(self, x: torch.Tensor) -> tuple[torch.Tensor | None, str]:
        if x.layout is torch.sparse_coo and not is_transformed(x) and x.numel() * x.element_size() <= _DENSE_BYTES:
            with no_torch_function(), torch.no_grad():
                x = x.detach().to_dense()  # as the gradient of an embedding, of which it has some rows
        if not has_values(x):
            return None, "is not a dense tensor of values"
        self._bytes += x.numel() * x.element_size()
        if self._bytes > LIMIT_BYTES:
            return None, f"comes after the first {LIMIT_BYTES >> 20} MiB"
        with no_torch_function(), torch.no_grad():
            plain = x.detach().dequantize() if x.is_quantized else x.detach().clone()
            return plain.resolve_conj().resolve_neg().cpu(), ""


def has_values(x: torch.Tensor) -> bool:
    """False for stand-ins of ``torch.func``, tensors without storage, and those that are not dense."""
    if is_transformed(x) or x.is_meta or is_fake(x) or x.layout is not torch.strided or x.is_nested:
        return False
    return not x.numel() or x.untyped_storage().nbytes() > 0  # FSDP frees what it has gathered


_recorder: Recorder | None = None


def named(name: object, x: object) -> None:
    """The program calls ``x`` by this name, and has it compared."""
    if _recorder is not None:
        _recorder.hear("value", safe_str(name), x)


def declared(x: object, by: str) -> None:
    """``x`` has just been given a type on somebody's word: ``by`` is whose."""
    if _recorder is not None:
        _recorder.hear("declared", by, x)


def placed_alike(x: torch.Tensor, axes: Sequence[object], by: str) -> None:
    """``x`` is taken for equal along ``axes``, as placements of a DTensor say: ``by`` is the function that does so."""
    if _recorder is not None:
        _recorder.placed_alike(x, axes, by)


def stepped(step: str, operands: Iterable[tuple[str, torch.Tensor]]) -> None:
    """An optimizer is about to take a ``step`` with these parameters and gradients, by name."""
    if _recorder is not None:
        _recorder.stepped(step, operands)


def overwritten(tensors: Iterable[torch.Tensor]) -> None:
    """A library has received into ``tensors`` what another rank has, in C++."""
    if _recorder is not None:
        _recorder.overwritten(tensors)


def recorded(kind: str, name: str, x: torch.Tensor) -> None:
    """``x`` is of this kind, untyped, and has no place in the source."""
    if _recorder is not None:
        _recorder.add(kind, name, x, UNTYPED, None)


def narrow_sum_heard(call: str, dtype: torch.dtype) -> bool:
    """Does somebody take note that the backward of ``call`` sums in so narrow a dtype unasked? Else it is refused."""
    if _recorder is None:
        return False
    at = user_location(2)
    where = "" if at is None else f" at {at}"
    said = f"the backward of {call}{where} sums in {dtype} unasked, and is refused outside of verify (SW209)"
    _recorder.narrow_sums[said] = None
    return True


def is_heard() -> bool:
    """False while what runs is not the program's own."""
    return _recorder is not None


def is_recorded() -> bool:
    """True while copies are taken of the program's tensors, to be compared with those of another run."""
    return _recorder is not None and _recorder.takes_copies


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Inside the block nothing is recorded: we run a function of the program for ourselves."""
    global _recorder
    before, _recorder = _recorder, None
    try:
        yield
    finally:
        _recorder = before


@contextlib.contextmanager
def heard_by(recorder: Recorder) -> Iterator[None]:
    """Everything of this process that is worth comparing goes to ``recorder`` inside the ``with`` block."""
    global _recorder
    before, _recorder = _recorder, recorder
    try:
        yield
    finally:
        _recorder = before
