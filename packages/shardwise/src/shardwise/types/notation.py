"""How is a tensor's type written down, and read back? The only printer and the only parser of typed shapes.

``f32[8, 16@tp] {dp: R}`` is a float32 tensor whose local shape is (8, 16), whose dim 1 is sharded over tp (so tp is V,
and need not be said again), and which is R on dp. ``P(max)`` and ``P(min)`` are other reductions than the sum. What is
too large by the axis's size is ``R*n``, too small ``R/n``, by its square ``R*n^2``; ``P(avg)`` is ``P*n``.
``8@(dp,tp)`` is sharded over dp and then over tp; in ``5@~tp`` the
shards may differ in length. A word after the braces is the ground: ``constant``, ``uniform``, ``zero``, ``empty`` or
``unknown``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

from .aliases import Axis
from .placement import UNKNOWN, PerMeshAxisLocalSpmdType, Placement, V
from .spec import entry_axes, make_entry, spec_of
from .tensor_type import Ground, Power, TensorType, as_power

_ABBREVIATIONS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn_x2": "f4e2m1fnx2",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "b8",
}
_DIGITS = 30
_BEGIN = 120
_GROUNDS_OR_END = "constant, uniform, zero, empty, unknown or the end"
_DTYPE = "|".join(
    (
        r"(?:b?float|b?complex|q?u?int|bits)[0-9]\w*",  # as PyTorch names them, now and later
        r"bool\b",
        *(rf"{short}\b" for short in _ABBREVIATIONS.values()),
    )
)
_FULL_NAMES = {short: name for name, short in _ABBREVIATIONS.items()}


@dataclass(frozen=True, slots=True)
class TypedShape(Pictured):
    """What ``typeof`` returns. ``dtype`` may be given as ``float32``, ``torch.float32`` or ``f32``.

    Example:
        >>> found = typeof(assert_type(torch.ones(4, 8), {"tp": S(1)}))
        >>> found.dtype, found.shape, found.type.local
        ('float32', (4, 8), {dp: R, tp: V})
    """

    dtype: str
    shape: tuple[int, ...]
    type: TensorType

    def __post_init__(self) -> None:
        name = str(self.dtype).removeprefix("torch.")
        object.__setattr__(self, "dtype", _FULL_NAMES.get(name, name))
        object.__setattr__(self, "shape", tuple(self.shape))

    def __str__(self) -> str:
        return format_typed_shape(self.dtype, self.shape, self.type)


def format_typed_shape(dtype: str, shape: tuple[int, ...], type: TensorType) -> str:
    """``f32[8, 16@tp] {dp: R}``. An axis that the shape shows is left out of the braces, and so are empty braces.

    Example:
        >>> format_typed_shape("float32", (8, 16), TensorType.of({normalize_axis("tp"): R}))
        'f32[8, 16] {tp: R}'
    """
    _require(type, TensorType, "a type to print is a TensorType")
    # A spec of the wrong length is somebody's mistake; the message about it must still print.
    in_shape = type.spec is not None and len(type.spec) == len(shape)
    entries = tuple(type.spec or ()) if in_shape else (None,) * len(shape)
    dims = ", ".join(_format_dim(size, entry, type.uneven) for size, entry in zip(shape, entries, strict=True))
    shown = {
        axis for entry in entries for axis in entry_axes(entry) if type.is_varying(axis) and not _factor(type, axis)
    }
    parts = [f"{abbreviate(dtype)}[{dims}]"]
    if any(axis not in shown for axis in type.axes):
        parts.append(_braces(type, shown))
    if type.ground is not Ground.ABSENT:
        parts.append(type.ground.value)
    if type.spec is not None and not in_shape:
        parts.append(repr(type.spec))
    return " ".join(parts)


def format_type(type: TensorType) -> str:
    """``{dp: V, tp: P}``: the placements of all axes, outermost first.

    Example:
        >>> format_type(TensorType.of({normalize_axis("tp"): P, normalize_axis("dp"): V}))
        '{dp: V, tp: P}'
    """
    _require(type, TensorType, "a type to print is a TensorType")
    return _braces(type, set())


def abbreviate(dtype: str) -> str:
    """``f32`` for ``float32``; a dtype without an abbreviation keeps its name.

    Example:
        >>> abbreviate("bfloat16"), abbreviate("torch.int64")
        ('bf16', 'i64')
    """
    _require(dtype, str, "a dtype to abbreviate is given by its name")
    name = dtype.removeprefix("torch.")
    return _ABBREVIATIONS.get(name, name)


def _braces(type: TensorType, hidden: set[object]) -> str:
    pairs = zip(type.axes, type.placements, strict=True)
    return "{" + ", ".join(f"{axis!r}: {format_placement(type, axis)}" for axis, _ in pairs if axis not in hidden) + "}"


def _factor(type: TensorType, axis: object) -> str:
    """By how much the value is too large or too small, ``*n`` or ``/n^2``; nothing where that is not known."""
    exponent = type.exponent(axis) or 0
    power = "" if abs(exponent) == 1 else f"^{abs(exponent)}"
    return "" if exponent == 0 else f"{'*' if exponent > 0 else '/'}n{power}"


def format_placement(type: TensorType, axis: object) -> str:
    """``P(avg)``, ``R/n``: the placement on one axis, with its scale."""
    place, factor = repr(type.get(axis)), _factor(type, axis)
    return "P(avg)" if place == "P" and factor == "*n" else place + factor


def times_off(size: int, exponent: Power) -> str:
    """By how much a value of this exponent is off the scale, over an axis of this size.

    Example:
        >>> times_off(2, -2), times_off(2, Fraction(1, 2))
        ('4', '2**(1/2)')
    """
    power = abs(exponent)
    return str(size**power) if isinstance(power, int) else f"{size}**({power})"


def _format_dim(size: int, entry: object, uneven: Collection[object]) -> str:
    axes = entry_axes(entry)
    if not axes:
        return str(size)
    names = ",".join(f"~{axis!r}" if axis in uneven else repr(axis) for axis in axes)
    return f"{size}@({names})" if len(axes) > 1 else f"{size}@{names}"


def parse(text: str, axes: Mapping[str, object]) -> TypedShape:
    """The typed shape that ``text`` says; ``axes`` gives the axis for every name in it.

    A spec without any sharded dim is not written, so it comes back as None.
    Errors: ValueError (SW905) with the position of what was not understood.
    Example:
        >>> parse("f32[8, 16@tp] {dp: R}", current_mesh_names())
        TypedShape(dtype='float32', shape=(8, 16), type={dp: R, tp: V} PartitionSpec(None, tp))
    """
    _require(text, str, "a typed shape to read is text")
    _require(axes, Mapping, "axes is a dict from name to mesh axis")
    return _Reader(text, axes).typed_shape()


def _require(value: object, wanted: type, rule: str) -> None:
    if not isinstance(value, wanted):
        raise SpmdArgumentError(f"{rule}, got {shown(value)} of type {type(value).__name__}", code="SW905")


class _Reader:
    def __init__(self, text: str, axes: Mapping[str, object]) -> None:
        self.text = text
        self.at = 0
        self.cut: set[Any] = set()
        self.uneven: set[Any] = set()
        self.scale: dict[Any, Power] = {}
        # Names may contain brackets and commas (``tp[4:1]``, ``{dp,cp}``), so they are matched whole, longest first.
        self.axes = sorted(axes.items(), key=lambda item: -len(item[0]))
        self.names = [name for name, _ in self.axes]

    def typed_shape(self) -> TypedShape:
        dtype = self.match(_DTYPE, "a dtype like f32, bf16 or i64")
        self.match(r"\[", "'['")
        shape: list[int] = []
        entries: list[Any] = []
        while not self.skip("]"):
            if shape:
                self.match(",", "',' or ']'")
            shape.append(self.size())
            entries.append(self.entry() if self.skip("@") else None)
        placements: dict[Any, Placement] = {axis: V for entry in entries for axis in entry_axes(entry)}
        if self.skip("{"):
            self.braces(placements, frozenset(placements))
        ground = Ground.ABSENT
        if self.rest():
            ground = Ground(self.match("constant|uniform|zero|empty|unknown", _GROUNDS_OR_END))
        if self.rest():
            raise self.error("the end")
        spec = spec_of(entries)
        return TypedShape(
            dtype, tuple(shape), TensorType.of(placements, spec, ground, frozenset(self.uneven), self.scale)
        )

    def size(self) -> int:
        if re.compile(rf"[0-9]{{{_DIGITS + 1}}}").match(self.text, self.at):
            raise self.error(f"a size of at most {_DIGITS} digits")
        is_axis = self.rest().startswith(tuple(self.names))
        several = " (several axes that cut one dim are written 8@(dp,tp))" if is_axis else ""
        return int(self.match("[0-9]+", f"the size of a dim{several}"))

    def entry(self) -> object:
        if not self.skip("("):
            return self.cutting_axis()
        axes = [self.cutting_axis()]
        while not self.skip(")"):
            self.match(",", "',' or ')'")
            axes.append(self.cutting_axis())
        return make_entry(axes)

    def cutting_axis(self) -> object:
        uneven = self.skip("~")
        before, axis = self.at, cast(Axis, self.axis())
        if axis in self.cut and axis.size() > 1:  # all axes of one rank are one
            self.at = before
            raise self.error("an axis that cuts nothing yet")
        self.cut.add(axis)
        if uneven:
            self.uneven.add(axis)
        return axis

    def braces(self, placements: dict[object, Placement], cut: frozenset[object]) -> None:
        first = True
        while not self.skip("}"):
            if not first:
                self.match(",", "',' or '}'")
            first = False
            self.rest()
            before, axis = self.at, self.axis()
            if axis in placements and axis not in cut:
                self.at = before
                raise self.error("an axis that was not given yet")
            self.match(":", "':'")
            sharded = " (S(i) is written at the dim, as in f32[8@dp])" if self.rest().startswith("S") else ""
            word = self.match(r"P\((?:max|min|avg)\)|[RIVP?]", f"R, I, V, P, P(max), P(min), P(avg) or ?{sharded}")
            if axis in cut and word != "V":
                self.at = before
                raise self.error("an axis that cuts no dim: one that does is V")
            placements[axis] = UNKNOWN if word == "?" else PerMeshAxisLocalSpmdType(word)
            factor = re.compile(r"([*/])n(?:\^([0-9]{1,9}(?:/[0-9]{1,2})?))?").match(self.text, self.at)
            if factor is not None:
                self.at = factor.end()
                self.scale[axis] = as_power(Fraction(factor.group(2) or "1")) * (1 if factor.group(1) == "*" else -1)

    def axis(self) -> object:
        self.rest()
        for name, axis in self.axes:
            if self.text.startswith(name, self.at):
                self.at += len(name)
                return axis
        if not self.axes:
            wanted = "a mesh that has it: set_current_mesh(mesh), or --mesh dp=2,tp=4 of a command"
            raise self.error("no axis, because there is no mesh that has any,", help=(wanted,))
        raise self.error(f"one of the axes {', '.join(sorted(self.names))}")

    def rest(self) -> str:
        """What is left, with leading blanks skipped."""
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.text[self.at :]

    def skip(self, mark: str) -> bool:
        found = self.rest().startswith(mark)
        self.at += len(mark) * found
        return found

    def match(self, pattern: str, expected: str) -> str:
        self.rest()
        found = re.compile(pattern).match(self.text, self.at)
        if found is None:
            raise self.error(expected)
        self.at = found.end()
        return found.group()

    def error(self, expected: str, help: tuple[str, ...] = ()) -> SpmdValueError:
        rest = self.text[self.at :]
        got = f"got {_begin(rest)!r}" if rest else "the text ends"
        text = self.text if self.at <= _BEGIN else f"...{self.text[self.at - _BEGIN // 2 : self.at + _BEGIN // 2]}..."
        return SpmdValueError(
            f"{_begin(text)!r}: expected {expected} at position {self.at}, {got}", code="SW905", help=help
        )


def _begin(text: str) -> str:
    return text if len(text) <= 2 * _BEGIN else f"{text[:_BEGIN]}..."
