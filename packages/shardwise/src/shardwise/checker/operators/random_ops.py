"""The handler of calls that draw random numbers: values that must be equal on all ranks need equal numbers.

That the generators give them, only somebody's word says: a declaration (``collectives/randomness.py``), or a stream
that seeded them so (``train/streams.py``, by way of ``interop/tensors/generators.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.diagnostics.source import user_location
from shardwise.interop.calls.tracing import anywhere
from shardwise.interop.tensors.generators import promised
from shardwise.interop.tensors.tagging import Tag, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.op_rules.propagation.local import Refusal
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.placement import UNKNOWN, R, V
from shardwise.types.tensor_type import UNTYPED, Ground, TensorType

from ..call.arguments import Op
from ..call.cache_key import full_key, gradient_bits
from ..parts.passed_pieces import refuse_unless_passed
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .first_calls import run_first
from .given_sizes import cut_like_sizes, sizes_of_call
from .judging import judge
from .known_calls import CachedVerdict, KnownWrites, remember
from .ordinary import Handler, writes_by_name


def random_op(op: Op) -> Handler:
    """The handler for what draws random numbers."""
    return _RandomOp(op).handle


class _RandomOp:
    """The calls of one operator that draws."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self._verdicts: dict[tuple[object, ...], CachedVerdict] = {}
        self._writes = KnownWrites(op)

    def handle(self, session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        """Run a call; the first of its kind is judged."""
        spoken = (session.says_types, session.seeded_apart)
        context = (session.synchronised, promised(kwargs.get("generator")), "generator" in kwargs, *spoken)
        # A generator is no key: what it promises is.
        plain = {name: kwargs[name] for name in kwargs if name != "generator"} if "generator" in kwargs else kwargs
        if self.op.in_place or writes_by_name(kwargs):
            key = self._writes.key(session, args, plain, context)
            known, result = self._writes.run(session, func, args, kwargs, key)
            return result if known else self._first(session, func, args, kwargs, key)
        tags: list[Tag | None] = []
        items = full_key(session, args, plain, tags)
        if items is None:
            return self._first(session, func, args, kwargs, None)
        key = (*items, *context, *gradient_bits(args, plain))
        verdict = self._verdicts.get(key)
        if verdict is None or anywhere.blocks:
            return self._first(session, func, args, kwargs, key)
        result = func(*args, **kwargs)
        verdict.hand_on(session, result, args, tags, False)
        return result

    def _first(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Arguments,
        kwargs: Keywords,
        key: tuple[object, ...] | None,
    ) -> object:
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        op = self.op
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        draws = op.rule.draws is None or op.rule.draws(op.static(args, kwargs, operands, values))
        template = type_of(args[0]) if op.templates and args else UNTYPED
        if draws and template.axes:
            operands = [Bound("input", template, label="input")]
            values = [args[0]]
            generators = draws_of(session, kwargs)
            outcome = _like_numbers(generators, template, overwrites=op.in_place)
            if op.in_place and not session.strict and outcome.refusals:
                outcome = _filled_by_whom_nobody_knows(generators, template, outcome)
        elif draws and not operands and not op.in_place:
            sizes = () if session.local else sizes_of_call(op.name, args, kwargs)
            outcome = _numbers(draws_of(session, kwargs), sizes)
        elif draws:
            generators = draws_of(session, kwargs)
            outcome = drawn(generators, outcome, operands)
            if outcome.refusals and not session.strict:
                outcome = _drawn_by_whom_nobody_knows(session, generators, outcome, "generator" in kwargs)
        if outcome.refusals:
            refuse_unless_passed(session, op, operands, values, outcome, blocked)
        writing = op.in_place or writes_by_name(kwargs)
        if key is not None and not writing:
            remember(self._verdicts, key, op, operands, values, outcome, args, kwargs)
        return run_first(session, self._writes, func, args, kwargs, values, outcome, key if writing else None)


@dataclass(frozen=True, slots=True)
class _Draws:
    """Along the axes ``equal`` this call's numbers are equal on all ranks; of ``meant``, a stream was made for that.
    Along ``distinct`` a stream gives each rank its own; of the axes in none of them nobody has said anything."""

    equal: frozenset[Any]
    meant: frozenset[Any]
    distinct: frozenset[Any] = frozenset()


def draws_of(session: CheckSession, kwargs: Keywords) -> _Draws:
    generator = kwargs.get("generator")
    promise = promised(generator)
    if promise is None:
        return _Draws(session.synchronised, frozenset())
    declared = session.synchronised - promise.distinct if generator is None else frozenset()
    return _Draws(declared | promise.synchronised, promise.synchronised, promise.distinct)


def _numbers(draws: _Draws, sizes: Sequence[object]) -> Outcome:
    """Random numbers out of nothing: unannotated, unless along every axis of the mesh the generator is synchronised, or
    the ``sizes`` are those of a shard."""
    mesh = current_entry()
    if mesh is None or not mesh.axes:
        return Outcome(UNTYPED, checked=False)
    type = cut_like_sizes(TensorType.of(dict.fromkeys(mesh.axes, R)), sizes)
    if any(type.is_varying(axis) for axis in draws.meant if axis in type):
        # Pieces that a stream was asked to make alike are no pieces of one tensor.
        type = TensorType.of(dict.fromkeys(mesh.axes, R))
    known = all(axis in (draws.equal if type.is_equal(axis) else mesh.axes - draws.meant) for axis in type.axes)
    return Outcome(type if known else UNTYPED, checked=False)


def _like_numbers(draws: _Draws, template: TensorType, *, overwrites: bool) -> Outcome:
    """Numbers in the shape of a typed tensor: they vary where it varies, and must be equal where it is equal."""
    pending = list(template.partial_axes)
    if pending and overwrites:  # equal numbers would be counted once per rank, and others are no sum of anything
        refused = tuple(AxisRefusal(axis, Refusal("SW112", "nonlinear", (0,))) for axis in pending)
        return Outcome(template.with_placements(dict.fromkeys(pending, UNKNOWN)), refused)
    if pending:
        return Outcome(UNTYPED, checked=False)  # what noise for a pending sum is to be, nobody has said
    type = template.with_ground(Ground.ABSENT)
    source = Bound("input", type, label="input")
    return drawn(draws, Outcome(type, sources=(0,) * len(type.axes)), [source])


def _filled_by_whom_nobody_knows(draws: _Draws, template: TensorType, outcome: Outcome) -> Outcome:
    """Weights that are initialised under seeds of which nobody has said anything: equal if the seeds are, which is
    not assumed and not denied. ``--ranks`` and ``verify`` compare the generators and the values."""
    unsaid, rest = _unsaid(draws, outcome)
    return replace(rest, type=template.with_placements(dict.fromkeys(unsaid, UNKNOWN)))


def _drawn_by_whom_nobody_knows(session: CheckSession, draws: _Draws, outcome: Outcome, own: bool) -> Outcome:
    """Dropout of equal values in a program that says no types, or has given the default generators one seed on all
    ranks: as above, and of what follows nothing is known. ``own``: it is drawn from a generator of the program's.

    Where several ranks are run, their generators are compared, which settles it.
    """
    apart = session.seeded_apart
    compared = session.data is not None and session.data.compares
    if session.says_types and (own or apart is None or compared):
        return outcome
    unsaid, rest = _unsaid(draws, outcome, apart or frozenset())
    if unsaid:
        what = "the type of what is drawn from generators of which nobody says that they are alike"
        session.lose(what, user_location())
    return rest


def _unsaid(draws: _Draws, outcome: Outcome, apart: frozenset[MeshAxis] = frozenset()) -> tuple[set[MeshAxis], Outcome]:
    """The axes along which nobody has said whether generators are alike, and the outcome without refusals there.

    ``apart``  those along which they were given different seeds.
    """
    unsaid = {one.axis for one in outcome.refusals if one.refusal.code == "SW121"} - draws.distinct - apart
    return unsaid, replace(outcome, refusals=tuple(one for one in outcome.refusals if one.axis not in unsaid))


def drawn(draws: _Draws, outcome: Outcome, operands: Sequence[Bound]) -> Outcome:
    """The outcome with a refusal for every axis along which equal values would get different numbers, or shards the
    same ones from a stream that is meant for equal values."""
    type = outcome.type
    if type.ground.is_constant:
        # Constants in the shape of a typed tensor vary where it varies; others say nothing about their ranks.
        shaped = [operand.type for operand in operands if isinstance(operand.type, TensorType)]
        type = shaped[0] if len(shaped) == 1 else type
        equal = [axis for axis in type.axes if not type.is_varying(axis)]
        alike = bool(type.axes) and all(axis in draws.equal for axis in equal)
        return replace(outcome, type=type.with_ground(Ground.ABSENT) if alike else UNTYPED, sources=())
    if not outcome.checked or type.ground is Ground.UNKNOWN:
        return outcome
    refusals = list(outcome.refusals)
    changes = {}
    for axis, place in zip(type.axes, type.placements, strict=True):
        if (place.is_equal or place.is_partial) and axis not in draws.equal:
            refusals.append(AxisRefusal(axis, Refusal("SW121", "unsynchronised", _of_place(operands, axis, place))))
            changes[axis] = UNKNOWN
        elif place.is_varying and axis in draws.meant:
            refusals.append(AxisRefusal(axis, Refusal("SW620", "the same numbers", _of_place(operands, axis, V))))
    if len(refusals) == len(outcome.refusals):
        return outcome
    return replace(outcome, type=type.with_placements(changes) if changes else type, refusals=tuple(refusals))


def _of_place(operands: Sequence[Any], axis: object, place: object) -> tuple[int, ...]:
    return tuple(at for at, o in enumerate(operands) if isinstance(o.type, TensorType) and o.type.get(axis) is place)
