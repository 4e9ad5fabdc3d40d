"""On which scale are the numbers that a program writes? Compared with what it writes on another number of ranks.

loss / 4           4 steps that are accumulated: 4 on two ranks and on four, so on the scale of one device
loss / 4           8 samples over 2 ranks: 2 on four ranks, so 1/n of something
loss * 2           as many as there are ranks, read of the environment: 4 on four ranks, so n

A number in a product with a tensor may be any of these, and one run cannot tell. So the program runs on as many ranks
as it was given, and on half or twice as many along the axis over which its data are shared out, and such numbers are
noted by the call that they stand in. Nothing is known unless its data are the same in both runs, shared out among more:
a batch of so many a rank makes another program of it.

Micro-batches of as many rows on any number of ranks are fewer on more ranks. The mean over one is then one over a
number that every run has, and it is the number of those means, which backward adds up, that falls with the ranks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from shardwise.diagnostics.coverage import OwnData
from shardwise.diagnostics.source import is_library_calling, user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.host.kept_process import KeptProcess
from shardwise.host.module_calls import telling_calls
from shardwise.host.program import Program
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.shape import MeshShape
from shardwise.types.tensor_type import Exponent

from ..run import CheckOptions, ToldNumbers, world_of
from .further_run import further_run

_PRODUCTS = frozenset(
    {"mul", "multiply", "imul", "rmul", "div", "divide", "true_divide", "truediv", "itruediv", "rdiv"}
)
_MOST_POWER = 2


@dataclass
class NumbersUsed:
    """What one run has written: numbers in products with tensors, by the call.

    ``rows``   the sizes of the first dims of the data that the first module was called with.
    ``calls``  how often that module was called for a gradient before an optimizer's first step.
    """

    numbers: dict[SourceLocation, set[float]] = field(default_factory=dict)
    rows: set[int] = field(default_factory=set)
    calls: int = 0


def with_known_numbers(
    program: Program, options: CheckOptions, data: Sequence[OwnData], other: KeptProcess, *, cuts: bool
) -> CheckOptions | None:
    """``options`` of a run that knows the exponents of the numbers that the program writes, along the axis over which
    ``data`` are shared out. It is on another number of ranks where the numbers of several calls are equal on as many as
    ``options`` say, and on different scales: ``loss / 2 / world`` on two ranks.

    ``cuts``  the program cuts its part of the data into micro-batches.

    None if there is no such axis of the mesh, the program does not run on another number of ranks, or nothing is known.
    """
    shape = options.mesh or MeshShape((("", options.world_size),))
    name = _shared_axis(shape, options.rank, data)
    if name is None:
        return None
    size = dict(shape.axes)[name]
    count = size // 2 if size > 2 and size % 2 == 0 else 2 * size
    resized = MeshShape(tuple((axis, count if axis == name else own) for axis, own in shape.axes))
    elsewhere = replace(
        options, mesh=None if options.mesh is None else resized, world_size=options.world_size * count // size
    )
    why = "on as many ranks and on another number of them, to compare the numbers that it writes"
    here = further_run(other, numbers_used, program, options, why)
    if here is None or not here.rows or not (here.numbers or cuts):
        return None
    there = further_run(other, numbers_used, program, elsewhere, why)
    if there is None:
        return None
    dealt_out = are_dealt_out(here, there, count / size)
    if dealt_out and not cuts:
        return None  # each rank has as many batches as its sampler gives: nothing shows which mean is over one of them
    told, rows = exponents_of(here, there, count / size), frozenset(here.rows if dealt_out else ())
    if None in told.values():
        told_there = exponents_of(there, here, size / count)
        if None not in told_there.values():
            return replace(elsewhere, told=ToldNumbers(resized.as_axes()[name], told_there, rows))
    if not told and not rows:
        return None
    return replace(options, told=ToldNumbers(shape.as_axes()[name], told, rows))


def _shared_axis(shape: MeshShape, rank: int, data: Sequence[OwnData]) -> str | None:
    """The axis of the mesh over whose ranks data are shared out, if it is one."""
    groups = {one.groups for one in data}
    if len(groups) != 1 or len(group := next(iter(groups))) != 1:
        return None
    for name, axis in shape.as_axes().items():
        if axis.size() > 1 and axis.layout.fiber(rank) == group[0]:
            return name
    return None


def exponents_of(here: NumbersUsed, there: NumbersUsed, ratio: float) -> dict[float, Exponent]:
    """Of the numbers ``here``; None: of no known scale. ``ratio``: of the ranks there to those here."""
    cut = bool(here.rows) and {count / ratio for count in here.rows} == {float(count) for count in there.rows}
    if not cut and not are_dealt_out(here, there, ratio):
        return {}
    found: dict[float, set[Exponent]] = {}
    for place, numbers in here.numbers.items():
        exponent = _exponent(numbers, there.numbers.get(place, set()), ratio)
        for number in numbers:
            found.setdefault(number, set()).add(exponent)
    return {number: next(iter(each)) if len(each) == 1 else None for number, each in found.items()}


def are_dealt_out(here: NumbersUsed, there: NumbersUsed, ratio: float) -> bool:
    """Are the micro-batches of a step as long there, and fewer on more ranks?"""
    return bool(here.rows) and here.rows == there.rows and here.calls == there.calls * ratio and here.calls > 0


def _exponent(here: set[float], there: set[float], ratio: float) -> Exponent:
    for power in sorted(range(-_MOST_POWER, _MOST_POWER + 1), key=abs):  # zero is no power of anything
        moved = sorted(number * ratio**power for number in here)
        if len(moved) == len(there) and all(map(math.isclose, moved, sorted(there))):
            return power
    return None


def numbers_used(program: Program, options: CheckOptions) -> NumbersUsed | None:
    """Run the program for what it writes; None if it does not come to its end."""
    used = NumbersUsed()
    try:
        loaded = program.load()
        with world_of(options), _noting_rows(used), _Noting(used.numbers):
            program.run(loaded)
    except SystemExit as left:
        return used if not left.code else None
    except Exception:  # whatever a program raises on a number of ranks that it was not written for
        return None
    return used


class _Noting(TorchFunctionMode):
    """Hears the calls of torch, and notes the numbers in products that the program itself asks for."""

    def __init__(self, numbers: dict[SourceLocation, set[float]]) -> None:
        super().__init__()
        self._numbers = numbers

    def __torch_function__(
        self,
        func: TorchFunction,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = getattr(func, "__name__", "").strip("_")
        if name in _PRODUCTS:
            given = (*args, *(kwargs or {}).values())
            numbers = [float(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool)]
            place = user_location() if numbers and not is_library_calling() else None
            if place is not None:
                self._numbers.setdefault(place, set()).update(numbers)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _noting_rows(used: NumbersUsed) -> Iterator[None]:
    first: list[torch.nn.Module] = []
    stepped: list[torch.optim.Optimizer] = []

    def called(module: torch.nn.Module, args: Mapping[str, object]) -> None:
        if not used.rows:
            data = (x for x in tree_leaves(args) if isinstance(x, torch.Tensor) and x.ndim and not x.requires_grad)
            used.rows.update(map(len, data))
            first.append(module)
        used.calls += module is first[-1] and torch.is_grad_enabled() and not stepped

    def steps(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        stepped.append(optimizer)

    handle = register_optimizer_step_pre_hook(steps)
    try:
        with telling_calls(called):
            yield
    finally:
        handle.remove()
