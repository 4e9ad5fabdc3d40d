"""Numbers that ``int``, ``float``, ``len``, ``range``, ``min``, ``max``, ``math`` and floats make in a program's own
files, and ``torchrun``'s variables.

What these are made of differs between ranks or is off the scale, and so is what they make. Elsewhere they make plain
numbers, which is listed: ``_Typed`` in ``numbers.py`` and ``RankText`` here say so.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from types import FrameType
from typing import Any, overload

import torch

from shardwise.diagnostics.source import is_internal, is_library_calling, user_location
from shardwise.host.number_calls import CARRYING, beside_float
from shardwise.host.program_ranks import own_rank
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.operand import may_be_count
from shardwise.types.placement import V
from shardwise.types.tensor_type import TensorType

from ...operators.value_reads import has_number, number_of
from ...state.number_types import number_type
from ...state.numbers import (
    TYPED_NUMBERS,
    ByRank,
    TypedFloat,
    TypedInt,
    combined,
    differs,
    known_by_rank,
    lost_by,
    plain,
    typed,
    written_of,
)
from ...state.tensor_classes import is_foreign
from ..patches import Patches, Plugin, checking_session
from .rank_numbers import LIMIT


class RankText(str):
    """A variable of ``torchrun``, which ``number`` is the number in. A str to everyone else."""

    number: object

    def __int__(self) -> int:
        session = checking_session()
        if session is not None and not is_library_calling():
            session.trust(lost_by("int"), user_location())
        return int(str(self))

    def __reduce__(self) -> tuple[object, ...]:
        return str, (str(self),)


class RankRange(Sequence[object]):
    """A range by a rank's number, whose members differ like it; a sequence as ``range`` is one."""

    def __init__(self, *bounds: int) -> None:
        self._bounds = bounds
        self._range = range(*map(plain, bounds))

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, at: int) -> object: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[object]: ...

    def __getitem__(self, at: int | slice) -> object:
        if isinstance(at, slice):
            return [self[one] for one in range(len(self))[at]]
        start = self._bounds[0] if len(self._bounds) > 1 else 0
        step = self._bounds[2] if len(self._bounds) > 2 else 1
        return start + range(len(self))[at] * step

    def __iter__(self) -> Iterator[object]:
        return (self[at] for at in range(len(self)))


def _install(patches: Patches) -> None:
    CARRYING.update({int: _made(int), float: _made(float), len: _length, range: _range, own_rank: _own_rank})
    CARRYING.update({function: _worked_out(function) for function in _OF_ONE})
    CARRYING[math.sqrt] = _root
    CARRYING.update({function: _chosen(function) for function in (min, max)})
    CARRYING[beside_float] = _beside
    patches.on_undo(CARRYING.clear)
    patches.replace_attribute(type(os.environ), "__getitem__", _reading)


def _own_rank() -> object:
    """The number of the rank that a program has started itself."""
    known = _variable("RANK", os.environ.__getitem__)
    return own_rank() if known is None else known


def _made(make: type) -> Callable[..., object]:
    def carried(given: object) -> object:
        number = given.number if isinstance(given, RankText) else given
        if number.__class__ in TYPED_NUMBERS:
            return typed(make(plain(number)), type_of(number), known_by_rank(make, number), written_of(number))
        session = checking_session() if isinstance(given, torch.Tensor) or is_foreign(given) else None
        if session is not None and session.numbers_left and not isinstance(given, torch.Tensor):
            session.trust(lost_by(make.__name__), user_location(2))
        if session is None or not isinstance(given, torch.Tensor):
            return make(given)
        type = type_of(given)
        session.keeps_numbers = True
        try:
            made = make(given)
        finally:
            session.keeps_numbers = False
        return typed(made, number_of(type)) if has_number(type) else made

    return carried


_KEEPING = (math.floor, math.ceil, math.trunc, math.fabs)
_OF_ONE = (
    *_KEEPING,
    *(math.exp, math.expm1, math.log, math.log1p, math.log2, math.log10),
    *(math.sin, math.cos, math.tan, math.tanh, math.erf),
)


def _worked_out(function: Callable[[float], float]) -> Callable[..., object]:
    """A function of ``math``: a number off the scale is on none that anyone knows, but where it is only rounded."""

    def carried(given: float) -> object:
        if given.__class__ not in TYPED_NUMBERS:
            return function(given)
        type = type_of(given)
        known = (
            type
            if function in _KEEPING
            else type.with_scale({axis: None for axis in type.axes if type.exponent(axis) != 0})
        )
        written = written_of(given) if function in _KEEPING else None
        return typed(function(plain(given)), known, known_by_rank(function, given), written)

    return carried


def _root(given: float) -> object:
    if given.__class__ not in TYPED_NUMBERS or plain(given) < 0:
        return math.sqrt(given)
    power: Any = given
    return power**0.5


def _chosen(choose: Callable[..., object]) -> Callable[..., object]:
    """``min`` and ``max`` of several numbers: another one may be chosen on another rank."""

    def carried(*given: object) -> object:
        if not any(number.__class__ in TYPED_NUMBERS for number in given):
            return choose(*given)
        made: Any = functools.reduce(functools.partial(combined, choose), given)
        counts = [number for number in given if number.__class__ in TYPED_NUMBERS or may_be_count(number)]
        if choose is max and len(counts) < len(given) and made.__class__ in TYPED_NUMBERS:
            largest: Any = functools.reduce(functools.partial(combined, max), counts)
            if plain(largest) == plain(made):  # max(rows, 1) is as many as there are rows
                known: TensorType = type_of(made).with_scale(type_of(largest).scale)
                return typed(plain(made), known, getattr(made, "by_rank", None))
        return made

    return carried


class BesideFloat:
    """A typed number behind a float and an operator: no number to the float, so that it is asked itself."""

    def __init__(self, number: TypedInt | TypedFloat) -> None:
        self._number = number

    def __radd__(self, left: float) -> object:
        return self._number.__radd__(left)

    def __rsub__(self, left: float) -> object:
        return self._number.__rsub__(left)

    def __rmul__(self, left: float) -> object:
        return self._number.__rmul__(left)

    def __rtruediv__(self, left: float) -> object:
        return self._number.__rtruediv__(left)

    def __rfloordiv__(self, left: float) -> object:
        return self._number.__rfloordiv__(left)

    def __rmod__(self, left: float) -> object:
        return self._number.__rmod__(left)

    def __rpow__(self, left: float) -> object:
        return self._number.__rpow__(left)


def _beside(right: object) -> object:
    return BesideFloat(right) if isinstance(right, (TypedInt, TypedFloat)) else right


def _length(of: Sized) -> object:
    """The size of a tensor's first dim, which has the scale of that; of anything else its length."""
    return of.shape[0] if isinstance(of, torch.Tensor) and of.ndim and checking_session() is not None else len(of)


def _range(*bounds: int) -> object:
    if len(bounds) <= 3 and any(bound.__class__ in TYPED_NUMBERS and type_of(bound).varying_axes for bound in bounds):
        return RankRange(*bounds)
    return range(*bounds)


def _reading(plain_get: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(plain_get)
    def read(self: Mapping[str, str], key: str) -> str:
        text = plain_get(self, key)
        if key not in _VARIABLES or checking_session() is None or _is_read_by_a_library():
            return text
        number = _variable(key, functools.partial(plain_get, self))
        if number is None:
            return text
        told = RankText(text)
        told.number = number
        return told

    return read


def _is_read_by_a_library() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _READERS:
        frame = frame.f_back
    return frame is None or is_internal(frame.f_code)


_READERS = {os.getenv.__code__.co_filename, Mapping.get.__code__.co_filename}
"""Python's own files between a program and a variable."""
_VARIABLES: dict[str, Callable[[int, int], int]] = {
    "RANK": lambda rank, local: rank,
    "ROLE_RANK": lambda rank, local: rank,
    "LOCAL_RANK": lambda rank, local: rank % local,
    "GROUP_RANK": lambda rank, local: rank // local,
    "WORLD_SIZE": lambda rank, local: 0,
}
"""What each is on a rank of the world, with so many ranks on each host."""


def _variable(key: str, read: Callable[[str], str]) -> object:
    """The number in a variable as the place of this rank; None if nothing differs, or nobody knows how."""
    try:
        ranks, own, number = int(read("WORLD_SIZE")), int(read("RANK")), int(read(key))
        local = int(read("LOCAL_WORLD_SIZE"))
    except (KeyError, ValueError):
        return None
    if not 1 < ranks <= LIMIT or not 0 <= own < ranks or local < 1:
        return None
    axis = MeshAxis.of(ranks, 1)
    if key == "WORLD_SIZE":
        return typed(ranks, number_type([axis], {axis: 1}))
    by_rank: ByRank = tuple(_VARIABLES[key](rank, local) for rank in range(ranks))
    if by_rank[own] != number or not differs(by_rank, axis):
        return None
    return typed(number, TensorType.of({axis: V}, scale={axis: None}), by_rank)


PLUGIN = Plugin("numbers that int, float, len, range, math and floats make", _install)
