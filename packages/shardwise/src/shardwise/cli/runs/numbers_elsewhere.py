"""On which scale are the numbers that a program writes? Compared with what it writes on another number of ranks.

loss / 4           4 steps that are accumulated: 4 on two ranks and on four, so on the scale of one device
loss / 4           8 samples over 2 ranks: 2 on four ranks, so 1/n of something
loss * 2           as many as there are ranks, read of the environment: 4 on four ranks, so n

A number in a product with a tensor may be any of these, and one run cannot tell. So the program runs on as many ranks
as it was given, and on half or twice as many along the axis over which its data are shared out, and such numbers are
noted by the line that they stand in. Nothing is known unless its data are the same in both runs, shared out among more:
a batch of so many a rank makes another program of it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from shardwise.diagnostics.coverage import OwnData
from shardwise.diagnostics.source import user_location
from shardwise.host.kept_process import KeptProcess
from shardwise.host.program import Program
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.shape import MeshShape
from shardwise.types.tensor_type import Exponent

from .further_run import further_run
from .run import CheckOptions, world_of

_PRODUCTS = frozenset(
    {"mul", "multiply", "imul", "rmul", "div", "divide", "true_divide", "truediv", "itruediv", "rdiv"}
)
_MOST_POWER = 2


@dataclass
class NumbersUsed:
    """What one run has written: numbers in products with tensors, by line and function; ``rows``: the sizes of the data
    that modules were called with along their first dim.
    """

    numbers: dict[tuple[str, int, str], set[float]] = field(default_factory=dict)
    rows: set[int] = field(default_factory=set)


def known_numbers(
    program: Program, options: CheckOptions, data: Sequence[OwnData], other: KeptProcess
) -> tuple[MeshAxis, dict[float, Exponent]] | None:
    """The exponents of numbers that the program writes, along the axis over which ``data`` are shared out.

    None if there is no such axis of the mesh, or the program does not run on another number of ranks.
    """
    shape = options.mesh
    name = None if shape is None else _shared_axis(shape, options.rank, data)
    if shape is None or name is None:
        return None
    size = dict(shape.axes)[name]
    count = size // 2 if size > 2 and size % 2 == 0 else 2 * size
    resized = MeshShape(tuple((axis, count if axis == name else own) for axis, own in shape.axes))
    elsewhere = replace(options, mesh=resized, world_size=options.world_size * count // size)
    why = "on as many ranks and on another number of them, to compare the numbers that it writes"
    here = further_run(other, numbers_used, program, options, why)
    there = None if here is None else further_run(other, numbers_used, program, elsewhere, why)
    if here is None or there is None:
        return None
    return shape.as_axes()[name], exponents_of(here, there, count / size)


def _shared_axis(shape: MeshShape, rank: int, data: Sequence[OwnData]) -> str | None:
    groups = {one.groups for one in data}
    if len(groups) != 1 or len(group := next(iter(groups))) != 1:
        return None
    for name, axis in shape.as_axes().items():
        first = rank - axis.layout.offset(rank)
        if axis.size() > 1 and tuple(first + offset for offset in axis.layout.ranks()) == group[0]:
            return name
    return None


def exponents_of(here: NumbersUsed, there: NumbersUsed, ratio: float) -> dict[float, Exponent]:
    """Of the numbers ``here``; None: of no known scale. ``ratio``: of the ranks there to those here."""
    if not here.rows or {count / ratio for count in here.rows} != {float(count) for count in there.rows}:
        return {}
    found: dict[float, set[Exponent]] = {}
    for place, numbers in here.numbers.items():
        exponent = _exponent(numbers, there.numbers.get(place, set()), ratio)
        for number in numbers:
            found.setdefault(number, set()).add(exponent)
    return {number: next(iter(each)) if len(each) == 1 else None for number, each in found.items()}


def _exponent(here: set[float], there: set[float], ratio: float) -> Exponent:
    for power in range(-_MOST_POWER, _MOST_POWER + 1):
        moved = sorted(number * ratio**power for number in here)
        if len(moved) == len(there) and all(map(math.isclose, moved, sorted(there))):
            return power
    return None


def numbers_used(program: Program, options: CheckOptions) -> NumbersUsed | None:
    """Run the program for what it writes; None if it does not come to its end."""
    used = NumbersUsed()
    try:
        loaded = program.load()
        with world_of(options), _noting_rows(used.rows), _Noting(used.numbers):
            program.run(loaded)
    except SystemExit as left:
        return used if not left.code else None
    except Exception:  # whatever a program raises on a number of ranks that it was not written for
        return None
    return used


class _Noting(TorchFunctionMode):
    def __init__(self, numbers: dict[tuple[str, int, str], set[float]]) -> None:
        super().__init__()
        self._numbers = numbers

    def __torch_function__(
        self, func: Any, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        name = getattr(func, "__name__", "").strip("_")
        if name in _PRODUCTS:
            given = (*args, *(kwargs or {}).values())
            numbers = [float(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool)]
            place = user_location() if numbers else None
            if place is not None:
                self._numbers.setdefault((place.file, place.line, name), set()).update(numbers)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _noting_rows(rows: set[int]) -> Any:
    def called(module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if not rows:
            leaves = tree_leaves((args, dict(kwargs)))
            rows.update(len(x) for x in leaves if isinstance(x, torch.Tensor) and x.ndim and not x.requires_grad)

    hook: Callable[..., RemovableHandle] = torch.nn.modules.module.register_module_forward_pre_hook
    handle = hook(lambda module, args: called(module, args, {}))
    try:
        yield
    finally:
        handle.remove()
