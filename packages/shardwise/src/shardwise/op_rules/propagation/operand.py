"""An operand of a call to propagation: its role, its type, its shape, and what it looks like along one axis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import Placement, V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Exponent, Ground, TensorType

from .local import ANY, Given, Weak


@dataclass(frozen=True, slots=True)
class Bound:
    """One operand of a call: ``param`` and ``index`` say where it stands, ``label`` what to call it.

    ``shape``  its local shape; None for a number.
    ``dtype``  its dtype's name.
    ``number``  its value, if it is a plain number.
    """

    param: str
    type: TensorType | Weak
    index: int | None = None
    grad: bool = False
    label: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    number: Any = None


_SIZES = (8, 16, 32, 64)
WHOLE = frozenset({"torch.bool", *(f"torch.{kind}{size}" for kind in ("int", "uint") for size in _SIZES)})
"""The dtypes of indices, targets and masks."""


def sharded_dim(type: TensorType | Weak, axis: MeshAxis) -> int | None:
    """The dim on which an operand of this type is sharded over ``axis``."""
    shard = partition_spec_get_shard(type.spec, axis) if isinstance(type, TensorType) else None
    return None if shard is None else shard.dim


def may_be_count(number: object) -> bool:
    """An integer above 1, as int or float, may be a size, a batch, a number of ranks: nobody knows its scale."""
    return isinstance(number, (int, float)) and not -2 < number < 2 and number % 1 == 0


_told: dict[MeshAxis, Mapping[float, Exponent]] = {}
"""By axis the exponents of numbers that the program writes, where other runs have shown them."""


@contextlib.contextmanager
def told_numbers(axis: MeshAxis, exponents: Mapping[float, Exponent]) -> Iterator[None]:
    """Inside the block the exponents along ``axis`` of these plain numbers are known."""
    before = _told.get(axis, {})
    _told[axis] = exponents
    try:
        yield
    finally:
        _told[axis] = before


def exponent_of_number(axis: object, number: object) -> Exponent:
    """That of a plain number along ``axis``: an axis of the mesh or of a region."""
    shown = _shown(axis, number)
    return shown[0] if shown else None if may_be_count(number) else 0


def _shown(axis: object, number: object) -> tuple[Exponent] | None:
    """The exponent along ``axis`` that other runs have shown a number to have, if they have."""
    told = _told.get(axis) if _told and isinstance(axis, MeshAxis) else None
    if told and isinstance(number, (int, float)) and float(number) in told:
        return (told[float(number)],)
    return None


def exponent_along(axis: MeshAxis, operand: Bound, type: TensorType | Weak) -> Any:
    """The exponent of an operand's scale: of a plain number, or as its type says it.

    ``type``  as the call sees it, said with the axes of the current mesh.
    """
    if type is Weak.ZERO:
        return ANY
    for said in (type, operand.type):
        if isinstance(said, TensorType):
            exponent = said.exponent(axis)
            shown = _shown(axis, operand.number) if exponent is None and _told else None
            return exponent if shown is None else shown[0]
    return exponent_of_number(axis, operand.number)


def givens_along(
    axis: MeshAxis, operands: Sequence[Bound], types: Sequence[TensorType | Weak]
) -> tuple[list[Given], list[int]]:
    """The operands as the local rule sees them along ``axis``, and their positions; untyped ones are left out."""
    givens: list[Given] = []
    positions: list[int] = []
    constants: list[int] = []
    for position, (operand, type) in enumerate(zip(operands, types, strict=True)):
        if isinstance(type, Weak):
            place: Placement | Weak = type
        elif axis in type:
            place = type.get(axis)
            if place is not V and not operand.grad and type.ground.is_constant:
                constants.append(len(givens))
        else:
            continue
        exponent = exponent_along(axis, operand, type)
        is_whole = operand.dtype in WHOLE
        givens.append(Given(operand.param, place, operand.index, operand.grad, operand.number, exponent, is_whole))
        positions.append(position)
    # A constant that is cut along another axis is still a constant along this one, if others say what is needed here.
    if len(constants) < sum(not isinstance(given.placement, Weak) for given in givens):
        for at in constants:
            zero = types[positions[at]].ground is Ground.ZERO  # type: ignore[union-attr]
            givens[at] = replace(givens[at], placement=Weak.ZERO if zero else Weak.CONSTANT)
    return givens, positions
