"""``plan``: the cheapest steps from one whole type to another, found by search and remembered.

The search knows where tensors are equal, cut or pending (``moves.py``). Here its path becomes typed steps: of what is
equal everywhere it is settled whether R or I is meant, so that every step is a row of the table of transitions and the
gradient, which takes the partners of the steps backwards, ends at the dual of the source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.given import outermost_first
from shardwise.mesh.regions import reinterpret
from shardwise.types.elements import not_pending
from shardwise.types.notation import format_type, format_typed_shape
from shardwise.types.placement import I, P, Placement, R, V
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, spec_of
from shardwise.types.tensor_type import Exponent, TensorType

from .cost import itemsize
from .cuts import Entries
from .links import ATTOSECONDS, UNIFORM, Links
from .moves import Move
from .plans import Plan, PlanStep
from .problem import Problem, State
from .shortest import shortest

_WHOLE = re.compile("q?u?int|bool")
"""Dtypes of whole numbers, by their names."""


@lru_cache(maxsize=8192)
def plan(
    shape: tuple[int, ...],
    dtype: str,
    src: TensorType,
    dst: TensorType,
    *,
    links: Links = UNIFORM,
    together: frozenset[MeshAxis] | None = None,
    max_bytes: int | None = None,
) -> Plan:
    """The cheapest steps for a tensor of global ``shape``.

    ``together``   the flattened axes over which one collective can run; None: any set of axes.
    ``max_bytes``  no local tensor on the way is larger.
    Errors: SW202 if no steps lead from ``src`` to ``dst``, or numbers of this dtype cannot take them; SW208 if none
    does within ``max_bytes``; SW132 if the types do not speak of the same axes.
    Example:
        >>> dp, tp = MeshAxis.of(2, 4), MeshAxis.of(4, 1)
        >>> src = TensorType.of({dp: V, tp: V}, PartitionSpec((dp, tp), None))
        >>> dst = TensorType.of({dp: V, tp: V}, PartitionSpec(None, (dp, tp)))
        >>> [(step.op, step.axes, step.bytes) for step in plan((16, 16), "float32", src, dst).steps]
        [('all_to_all', (dp, tp), 112)]
    """
    src, dst = _same_axes(src, dst)
    problem = problem_of(shape, dtype, src, dst, links, together, max_bytes)
    path = shortest(problem)
    if path is None:
        raise _no_way(src, dst, max_bytes)
    return Plan(shape, dtype, src, dst, steps_of(problem, src, dst, path))


def steps_of(problem: Problem, src: TensorType, dst: TensorType, path: Sequence[Move]) -> tuple[PlanStep, ...]:
    """The typed steps of a path; ``src`` and ``dst`` have the same axes."""
    return tuple(_Steps(problem, src.axes, src, dst).of(path))


def problem_of(
    shape: tuple[int, ...],
    dtype: str,
    src: TensorType,
    dst: TensorType,
    links: Links = UNIFORM,
    together: frozenset[MeshAxis] | None = None,
    max_bytes: int | None = None,
) -> Problem:
    """What is to be searched; ``src`` and ``dst`` have the same axes. Errors: SW202, SW132, SW208."""
    axes: tuple[MeshAxis, ...] = src.axes
    start, goal = _state(src, shape), _state(dst, shape)
    for axis in axes:
        _check_pair(axis, src, dst)
    _check_values(dtype, src, dst)
    weights, latencies = links.integers(axes)
    varying = sum(1 << at for at, axis in enumerate(axes) if _is_list(src, axis))
    problem = Problem(
        sizes=tuple(axis.size() for axis in axes),
        shape=shape,
        dtype=dtype,
        itemsize=itemsize(dtype),
        start=start,
        goal=goal,
        kinds=tuple(str(src.get(axis)) if src.get(axis).is_partial else "" for axis in axes),
        fixed=varying | (start[0] & goal[0]),
        made=goal[0] & ~start[0],
        together=None if together is None else frozenset(_masks(axes, together)),
        weights=weights,
        latencies=latencies,
        most=None if max_bytes is None else max_bytes // itemsize(dtype),
    )
    for what, state in (("before", start), ("after", goal)):
        if max_bytes is not None and problem.elements(state[1]) * problem.itemsize > max_bytes:
            raise _too_large(problem, src, dst, state, what, max_bytes)
    return problem


def _same_axes(src: TensorType, dst: TensorType) -> tuple[TensorType, TensorType]:
    """Both types said with the same axes: those of the finer one, where one flattens what the other names singly."""
    if src.axes == dst.axes:
        return src, dst
    for one, other in ((src, dst), (dst, src)):
        try:
            said = reinterpret(one, other.axes)
        except SpmdTypeError:
            continue
        if said.axes == other.axes:
            return (said, other) if one is src else (other, said)
    only = [axis for axis in (*src.axes, *dst.axes) if (axis in src) != (axis in dst)]
    raise SpmdValueError(
        f"src_spec {format_type(src)} and dst_spec {format_type(dst)} do not speak of the same axes: "
        f"{', '.join(map(repr, only))} {'is' if len(only) == 1 else 'are'} in one of them only",
        code="SW132",
        help=("R or I for an axis over which the tensor is not sharded",),
    )


def _state(type: TensorType, shape: tuple[int, ...]) -> State:
    number = {axis: at for at, axis in enumerate(type.axes)}
    spec = (None,) * len(shape) if type.spec is None else type.spec
    if len(spec) != len(shape):
        raise SpmdValueError(
            f"{type.spec!r} has {len(spec)} entries for a tensor of {len(shape)} dims, expected one entry per dim",
            code="SW132",
        )
    entries = tuple(tuple(number[axis] for axis in entry_axes(entry)) for entry in spec)
    return sum(1 << number[axis] for axis in type.partial_axes), entries


def _is_list(type: TensorType, axis: MeshAxis) -> bool:
    """V that cuts no dim."""
    return type.get(axis) is V and not any(axis in entry_axes(entry) for entry in type.spec or ())


def _check_pair(axis: MeshAxis, src: TensorType, dst: TensorType) -> None:
    before, after = src.get(axis), dst.get(axis)
    if before.is_unknown or after.is_unknown:
        raise SpmdValueError(f"the type over {axis!r} is not known, so nothing can be planned", code="SW202")
    if _is_list(src, axis) != _is_list(dst, axis):
        raise SpmdValueError(
            f"redistribute keeps the whole value, and V over {axis!r} does not say what the whole is: "
            f"{before!r} cannot become {after!r} there",
            code="SW202",
            help=(
                "S(i) in place of V, which says the dim",
                "redistribute(x, axis, src=..., dst=...), which stacks along a new dim",
            ),
        )
    if after.is_partial and before is not after and (before.is_partial or after.is_extremum):
        raise SpmdValueError(
            f"{before!r} over {axis!r} cannot become {after!r}: no step makes another pending reduction of it",
            code="SW202",
            help=(f"dst_spec with R, I or S(i) over {axis!r}",),
        )


def _check_values(dtype: str, src: TensorType, dst: TensorType) -> None:
    """What the elements themselves have to be able to say: a sum, an order, or a fraction. Errors: SW202."""
    for type in (src, dst):
        wrong = not_pending(dtype, type)
        if wrong is not None:
            raise SpmdValueError(wrong.message, code="SW202", help=wrong.help)
    factor = _factor(src, dst)
    if not factor.is_integer() and _WHOLE.match(dtype):
        raise SpmdValueError(
            f"{format_type(src)} is {1 / factor:g} times {format_type(dst)}, and numbers of dtype {dtype} cannot be "
            f"multiplied by {factor:g}",
            code="SW202",
            help=("a floating dtype before the move",),
        )


def _factor(src: TensorType, dst: TensorType) -> float:
    """By what the value has to be multiplied, where it is off by powers of the axes' sizes."""
    factor = 1.0
    for axis in src.axes:
        before, after = src.exponent(axis), dst.exponent(axis)
        if before is not None and after is not None:
            factor *= float(axis.size()) ** (after - before)
    return factor


def _masks(axes: tuple[MeshAxis, ...], together: Collection[MeshAxis]) -> Iterator[int]:
    """The bits of the axes that make up each flattened one."""
    for whole in together:
        inside = [at for at, axis in enumerate(axes) if axis <= whole]
        if len(inside) > 1 and axes[inside[0]].layout.merge(*(axes[at].layout for at in inside[1:])) == whole.layout:
            yield sum(1 << at for at in inside)


class _Steps:
    """The typed steps of a path."""

    def __init__(self, problem: Problem, axes: tuple[MeshAxis, ...], src: TensorType, dst: TensorType) -> None:
        self.problem, self.axes, self.src, self.dst = problem, axes, src, dst
        self.now: dict[MeshAxis, Placement] = {axis: src.get(axis) for axis in axes}
        self.scale: dict[MeshAxis, Exponent] = dict(src.scale)
        self.state: State = problem.start
        self.type = self._type()

    def of(self, path: Collection[Move]) -> Iterator[PlanStep]:
        """The steps: those of the path, and between them what changes neither bytes nor shapes."""
        states = [self.problem.start, *(move.after for move in path)]
        cheapest = min(range(len(states)), key=lambda at: self.problem.elements(states[at][1]))
        moving = {axis for move in path for axis in move.axes}
        still = [axis for at, axis in enumerate(self.axes) if at not in moving]
        for at, move in enumerate([None, *path]):
            if move is not None:
                yield from self._step(move)
            if at == cheapest:
                yield from self._renamed(still)
                yield from self._scaled()

    def _step(self, move: Move) -> Iterator[PlanStep]:
        axes = [self.axes[at] for at in move.axes]
        before_entries = self.state[1]
        goal = {axis: self.dst.get(axis) for axis in axes}
        cut = {self.axes[at] for at in move.axes if any(at in entry for entry in move.after[1])}
        pending = {self.axes[at] for at in move.axes if move.after[0] >> at & 1}
        equal = [axis for axis in axes if axis not in cut and axis not in pending]
        wanted = {axis: goal[axis] if goal[axis].is_equal else R for axis in equal}
        # Of a sum I is the cheaper one to give first, of pieces R: the gradient of the rest is then free, or smaller.
        common = (I if move.op == "all_reduce" else R) if len(set(wanted.values())) > 1 else None
        changes: dict[MeshAxis, Placement] = {axis: common or wanted[axis] for axis in equal}
        changes |= dict.fromkeys(cut, V) | dict.fromkeys(pending, P)
        dims = [dim for dim, (one, other) in enumerate(zip(before_entries, move.after[1], strict=True)) if one != other]
        yield self._made(move.op, axes, changes, move.after, dims[0] if len(dims) == 1 else None, move)
        yield from self._renamed(equal)

    def _renamed(self, axes: Collection[MeshAxis]) -> Iterator[PlanStep]:
        """R to I or I to R, where the search saw no difference."""
        for axis in axes:
            after = self.dst.get(axis)
            if after.is_equal and self.now[axis] is not after:
                yield self._made("convert", [axis], {axis: after}, self.state)

    def _scaled(self) -> Iterator[PlanStep]:
        """One multiplication for what is off by powers of the axes' sizes; it commutes with every step."""
        factor = _factor(self.src, self.dst)
        if factor != 1.0:
            yield self._made("scale", [], {}, self.state, factor=factor)
        elif self.src.scale != self.dst.scale:
            self.scale = dict(self.dst.scale)
            self.type = self._type()

    def _made(
        self,
        op: str,
        axes: Collection[MeshAxis],
        changes: Mapping[MeshAxis, Placement],
        after: State,
        dim: int | None = None,
        move: Move | None = None,
        factor: float = 1.0,
    ) -> PlanStep:
        problem = self.problem
        src, before = self.type, problem.local_shape(self.state)
        self.now |= changes
        self.state = after
        if factor != 1.0:
            self.scale = dict(self.dst.scale)
        self.type = self._type()
        received = 0 if move is None else move.elements * problem.itemsize
        return PlanStep(
            op=op,
            axes=outermost_first(axes),
            src=src,
            dst=self.type,
            before=before,
            after=problem.local_shape(after),
            dim=dim,
            bytes=received,
            messages=0 if move is None else move.messages,
            time=0.0 if move is None else move.time / ATTOSECONDS,
            factor=factor,
        )

    def _type(self) -> TensorType:
        entries = self.state[1]
        spec = spec_of(make_entry([self.axes[at] for at in entry]) for entry in entries)
        made = TensorType.of(self.now, spec, uneven=self._uneven(entries))
        return made.rescaled(self.scale) if self.scale else made

    def _uneven(self, entries: Entries) -> frozenset[MeshAxis]:
        """The axes that cut a length which is no multiple of their ranks."""
        found: set[MeshAxis] = set()
        if self.problem.holdings.even:
            return frozenset()
        for dim, entry in enumerate(entries):
            for count, at in enumerate(entry):
                if self.problem.length(dim, entry[:count]) % self.problem.sizes[at] or found & {
                    self.axes[one] for one in entry[:count]
                }:
                    found.add(self.axes[at])
        return frozenset(found)


def _no_way(src: TensorType, dst: TensorType, max_bytes: int | None) -> SpmdValueError:
    if max_bytes is None:
        return SpmdValueError(f"no steps lead from {format_type(src)} to {format_type(dst)}", code="SW202")
    return SpmdValueError(
        f"no steps lead from {format_type(src)} to {format_type(dst)} with no local tensor above max_bytes={max_bytes}",
        code="SW208",
        help=("no max_bytes, to see the smallest that is enough: the largest tensor of the plan",),
    )


def _too_large(
    problem: Problem, src: TensorType, dst: TensorType, state: State, what: str, max_bytes: int
) -> SpmdValueError:
    bytes_needed = problem.elements(state[1]) * problem.itemsize
    shape = format_typed_shape(problem.dtype, problem.local_shape(state), src if what == "before" else dst)
    return SpmdValueError(
        f"max_bytes={max_bytes} cannot be kept: {what} the move a rank holds {shape}, {bytes_needed} bytes",
        code="SW208",
        help=(f"max_bytes={bytes_needed}, or shard the tensor further",),
    )


def even_shape(local: tuple[int, ...], spec: PartitionSpec | None) -> tuple[int, ...]:
    """The global shape of which ``local`` is every rank's part."""
    shape = []
    for length, entry in zip(local, spec or (None,) * len(local), strict=True):
        for axis in entry_axes(entry):
            length *= axis.size()
        shape.append(length)
    return tuple(shape)
