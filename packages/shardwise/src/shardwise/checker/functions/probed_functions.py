"""Autograd functions around collectives of which nobody has said anything: their types are found by running them.

Only a function whose code names a collective or asks for a rank is run, on simulated ranks, with values of its own; it
is looked at once for each class, kind of arguments and types of operands. What cannot be told stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.autograd.forward_args import bind_forward_args, named_tensors
from shardwise.interop.calls.located_call import LocatedCall, axis_text, describe_value, report
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import propagate
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.schema import OpRule
from shardwise.op_rules.transition_types import TransitionCall, parts_of, type_after
from shardwise.oracle.function_runs import FunctionRuns, NotRun
from shardwise.oracle.function_shards import shard_dims
from shardwise.oracle.function_transition import transition_of
from shardwise.oracle.function_typings import FunctionTransition, Typing
from shardwise.oracle.public_transitions import PublicTransition
from shardwise.types.placement import PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Shard
from shardwise.types.spec import make_entry, partition_spec_get_shard, spec_of
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..diagnosis.collective_findings import wrong_shard_dim
from ..diagnosis.function_findings import backward_line, misfit, never_waited, not_partner, scaled, shown_function
from ..state.session import CheckSession
from .calls_by_counts import but_equal_by_chance, known_by_counts, note_by_counts
from .examination import examined
from .open_readings import note_neighbours, read_openly

_MOST = 64
"""A session runs no more kinds of calls than these."""
ANY = "RIVP"
"""The letters of an operand of which nothing is known along an axis."""


def runs_locally(session: CheckSession, cls: type[torch.autograd.Function], args: Sequence[object]) -> bool:
    """True if this call has been run, and neither its forward nor its backward communicates.

    Of a pending sum it is not said: what is local need not be linear.
    """
    entry = _entry(session, cls, args)
    return entry is not None and entry.is_local and not any(type_of(x).partial_axes for x in args if _is_float(x))


def probed(session: CheckSession, cls: type, args: Sequence[object], run: Callable[[], object]) -> object:
    """Run ``cls.apply(*args)`` with its results typed as its collectives say, and what is wrong in it reported."""
    entry = _entry(session, cls, args)
    key = call_key(cls, args)
    before = [type_of(x) for x in args if _is_float(x)]  # forward may write into them
    with paused(session):
        results = run()
    if entry is None:
        return results
    if entry.axis is not None:
        session.note_exchange(entry.axis, before)
    note_neighbours(session, cls, args, before)
    floats: list[Any] = [leaf for leaf in tree_leaves(results) if _is_float(leaf)]
    ndims = [leaf.ndim for leaf in floats]
    key = ("types", *key, *ndims)
    if key not in session.probed:
        session.probed[key] = _types(session, cls, args, entry, before, ndims)
    types = session.probed[key]
    if types is not None and entry.axis is not None:
        types = read_openly(session, entry, entry.axis, args, types)
    session.checked += types is not None
    origin = Origin(user_site(), f"made by {cls.__name__} here")
    for leaf, type in zip(floats, types or (), strict=False):
        if type is not UNTYPED:
            set_tag(leaf, Tag(type, origin))
    return results


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _entry(
    session: CheckSession, cls: type[torch.autograd.Function], args: Sequence[object]
) -> FunctionTransition | None:
    """What is known of calls like this one; None if nothing can be."""
    if dist.group.WORLD is None or torch.compiler.is_compiling():
        return None
    key = call_key(cls, args)
    if key in session.probed:
        found: FunctionTransition | None = session.probed[key]
        return found
    known = known_by_counts(session, key) if session.local else None
    if known is not None:
        return known
    if sum(isinstance(known, FunctionTransition) for known in session.probed.values()) >= _MOST:
        return None
    session.probed[key] = None  # if it calls itself while it is looked at
    with examined(session):
        found = _found(cls, args)
    session.probed[key] = found
    if found is not None:
        note_by_counts(session, key, found)
        _judge(session, cls, args, found)
    return found


def _found(cls: type[torch.autograd.Function], args: Sequence[object]) -> FunctionTransition | None:
    operands = [x for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    try:
        runs = FunctionRuns(cls, args, cls.apply, dist.get_rank())
    except NotRun:
        return None
    found = transition_of(runs, lambda axis: [_letters(x, type_of(x), axis) for x in operands])
    runs.unshared = frozenset(at for at, x in enumerate(args) if isinstance(x, torch.Tensor) and _may_differ(x, found))
    found = but_equal_by_chance(found, args)
    if not found.ways and not found.unclear and runs.marks_rows():
        runs.complemented = True
        if transition_of(runs, lambda axis: [_letters(x, type_of(x), axis) for x in operands]).ways:
            return replace(found, unclear="it is right where every row is marked on one rank alone")
        runs.complemented = False
    if not found.ways and found.axis is not None and not found.unclear:
        known = [letters_of(type_of(x), found.axis) for x in operands]
        if any(letters != ANY for letters in known):
            other = transition_of(runs, lambda axis: [ANY] * len(operands))
            if other.ways:
                return _Misfit.of(found, other)
    return found


def _may_differ(x: torch.Tensor, found: FunctionTransition) -> bool:
    """May other ranks have other values than these? Nobody says that they have the same."""
    type = type_of(x)
    return not type.ground.is_constant and (found.axis is None or not type.is_equal(found.axis))


class _Misfit(FunctionTransition):
    """A function that is right for operands of other types, ``others``."""

    others: frozenset[Typing]

    @classmethod
    def of(cls, found: FunctionTransition, other: FunctionTransition) -> _Misfit:
        made = cls(
            found.axis, found.ways, found.scaled, found.forward, found.backward, "", other.like, other.backward_like
        )
        object.__setattr__(made, "others", other.ways)
        return made


def call_key(cls: object, args: Sequence[object]) -> tuple[object, ...]:
    return (cls, *(_key_of(value) for value in args))


def _key_of(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return (value.ndim, value.dtype, type_of(value), value.requires_grad)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return (type(value), *map(_key_of, value))
    return id(value)


def letters_of(type: TensorType, axis: MeshAxis) -> str:
    """The placement that an operand of this type has along ``axis``; all if it is not known."""
    parts = parts_of(axis, type)
    places = {type.get(part) for part in parts}
    if type.ground is not Ground.ABSENT or len(places) != 1:
        return ANY
    (place,) = places
    return place.value if isinstance(place, PerMeshAxisLocalSpmdType) else ANY


def _letters(x: torch.Tensor, type: TensorType, axis: MeshAxis) -> str:
    """The placements that ``x`` of this type may have along ``axis``, its own first.

    R and I differ by their gradients alone, so without one R is as good as I: data may enter a region as either.
    """
    own = letters_of(type, axis)
    return own if x.requires_grad or own not in "RI" else own + "RI".replace(own, "")


def _judge(
    session: CheckSession, cls: type[torch.autograd.Function], args: Sequence[object], found: FunctionTransition
) -> None:
    """Report what is wrong in the function, or in its use."""
    dropped = found.never_waited
    if dropped is not None:
        place = None if dropped.site is None else dropped.site.location()
        _tell(session, cls, args, never_waited(cls, dropped), place, found.axis)
    elif found.ways or found.axis is None or found.unclear or _is_steered(args, found.axis):
        return
    elif isinstance(found, _Misfit):
        _tell_misfit(session, cls, args, found)
    elif found.scaled and (session.averages(found.axis) or not _is_typed(args, found.axis)):
        _tell(session, cls, args, scaled(cls, found), backward_line(cls), found.axis)
    else:
        place = backward_line(cls, () if found.scaled else found.backward)
        _tell(session, cls, args, not_partner(cls, found), place, found.axis)


def _is_typed(args: Sequence[object], axis: MeshAxis) -> bool:
    return any(letters_of(type_of(x), axis) != ANY for x in args if isinstance(x, torch.Tensor))


def _is_steered(args: Sequence[object], axis: MeshAxis) -> bool:
    """True if an index or a mask among ``args`` differs over ``axis``: nobody here knows that of another rank."""
    steering = [x for x in args if isinstance(x, torch.Tensor) and not x.is_floating_point()]
    return any(type_of(x).is_varying(part) for x in steering for part in parts_of(axis, type_of(x)))


def _tell(
    session: CheckSession,
    cls: type,
    args: Sequence[object],
    said: Diagnosis,
    place: SourceLocation | None,
    axis: MeshAxis | None,
) -> None:
    located = LocatedCall(cls.__name__, named_tensors(bind_forward_args(cls, args)))
    applied = shown_function(cls, ", ".join(map(describe_value, located.values)), located.location)
    located.location = place or located.location
    report(session, located, said, axis, operands=(applied,))


def _tell_misfit(session: CheckSession, cls: type, args: Sequence[object], found: _Misfit) -> None:
    located = LocatedCall(cls.__name__, named_tensors(bind_forward_args(cls, args)))
    floats = [x for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    assert found.axis is not None, "a function without an axis is nobody's misfit"
    known = [letters_of(type_of(x), found.axis) for x in floats]
    best = max(sorted(found.others), key=lambda way: sum(a in b for a, b in zip(way.operands, known, strict=True)))
    at = next(
        at for at, (letter, letters) in enumerate(zip(best.operands, known, strict=True)) if letter not in letters
    )
    wanted = sorted({way.operands[at] for way in found.others})
    position = next(n for n, value in enumerate(located.values) if value is floats[at])
    named = _row(found.like, best)
    said = misfit(cls, located.name(position), named, found.axis, wanted, known[at])
    report(session, located, said, found.axis, operands=(located.operand(position, found.axis),))


def _row(like: Sequence[PublicTransition], way: Typing, shard: Shard | None = None) -> PublicTransition | None:
    """The public call that a function with this typing is; of several, that for a tensor with this shard."""
    fits = [one for one in like if _letter(one.src) + _letter(one.dst) == way.operands + way.results]
    return next((one for one in fits if shard is not None and one.src == shard), fits[0] if fits else None)


def _letter(place: PerMeshAxisSpmdType) -> str:
    return "V" if isinstance(place, Shard) else place.value


def _types(
    session: CheckSession,
    cls: type,
    args: Sequence[object],
    found: FunctionTransition,
    types: Sequence[TensorType],
    ndims: Sequence[int],
) -> list[TensorType] | None:
    """The types of the floating-point results, which have ``ndims`` dims, in order; None: nothing is known.

    ``types``  of the floating-point operands.
    """
    if not found.ways:
        wrong = found.axis is not None and not found.unclear and not found.scaled
        return [UNKNOWN_TYPE] * len(ndims) if wrong else None
    axis = found.axis
    assert axis is not None, "a transition is along an axis"
    operands: list[Any] = [x for x in args if _is_float(x)]
    known = [_letters(x, type, axis) for x, type in zip(operands, types, strict=True)]
    if ANY in known:
        return None  # an untyped operand: what comes of it is not known
    fitting = [way for way in sorted(found.ways) if all(a in b for a, b in zip(way.operands, known, strict=True))]
    way = min(fitting, key=lambda way: sum(a != b[0] for a, b in zip(way.operands, known, strict=True)), default=None)
    if way is None or "?" in way.results or len(way.results) != len(ndims):
        return None
    session.trust(f"{cls.__qualname__} is {_shown(way)} over {axis_text(axis)}, found by running it", user_site())
    row = _row(found.like, way, None if session.local else partition_spec_get_shard(types[0].spec, axis))
    if row is not None:
        return [_after_row(session, cls, operands[0], types[0], row, axis)]
    rest = _beside(cls, operands, types, axis)
    if rest is None:
        return None
    parts = parts_of(axis, types[0])
    local = [rest.with_placements(dict.fromkeys(parts, PerMeshAxisLocalSpmdType(letter))) for letter in way.results]
    return local if session.local else _placed(session, cls, args, axis, types, local, ndims)


def _placed(
    session: CheckSession,
    cls: type[torch.autograd.Function],
    args: Sequence[object],
    axis: MeshAxis,
    types: Sequence[TensorType],
    local: Sequence[TensorType],
    ndims: Sequence[int],
) -> list[TensorType] | None:
    """The types ``local`` of results with the dims that are sharded; None if they cannot be told."""
    mesh = current_entry()
    if mesh is None or axis not in mesh.axes or mesh.local_axes or any(type.partial_axes for type in types):
        return None
    others = [
        one for one in mesh.ordered_axes if one is not axis and any(_dim(type, one) is not None for type in types)
    ]
    if any(type.is_varying(one) and _dim(type, one) is None for type in types for one in type.axes):
        return None
    with_dims = [[_dim(type, one) for type in types] for one in (axis, *others)]
    with examined(session):
        runs = FunctionRuns(cls, args, cls.apply, dist.get_rank())
        found = shard_dims(runs, axis, with_dims[0], with_dims[1:], len(local))
    if found is None:
        return None
    placed = []
    for at, type in enumerate(local):
        sharded = {one: dims[at] for one, dims in zip((axis, *others), (found[0], *found[1]), strict=True)}
        if any(type.is_varying(one) != (sharded.get(one) is not None) for one in type.axes):
            return None
        entries: dict[int, list[MeshAxis]] = {}
        for one, dim in sorted(sharded.items(), key=lambda item: item[0].sort_key):
            if dim is not None:
                entries.setdefault(dim, []).append(one)
        spec = spec_of([make_entry(entries.get(dim, [])) for dim in range(ndims[at])])
        placed.append(type.with_spec(spec))
    return placed


def _dim(type: TensorType, axis: MeshAxis) -> int | None:
    """The dim that ``axis`` shards."""
    shard = partition_spec_get_shard(type.spec, axis)
    return None if shard is None else shard.dim


def _shown(way: Typing) -> str:
    return f"{', '.join(way.operands)} -> {', '.join(way.results)}"


def _after_row(
    session: CheckSession, cls: type, x: torch.Tensor, before: TensorType, row: PublicTransition, axis: MeshAxis
) -> TensorType:
    """The type after the public call that the function is, of a tensor of the type ``before``."""
    parts = parts_of(axis, before)
    step = TransitionCall(row.row.op, axis, parts, row.src, row.dst, x.ndim, cls.__name__)
    mesh = current_entry()
    local_axes = frozenset() if mesh is None else mesh.local_axes
    if session.local:
        place = PerMeshAxisLocalSpmdType("V") if isinstance(row.dst, Shard) else row.dst
        return before.with_placements(dict.fromkeys(parts, place)).with_spec(None)
    after = type_after(step, before, local_axes)
    own, refusal = partition_spec_get_shard(before.spec, axis), after.refusal
    located = LocatedCall(cls.__name__, [("x", x)])
    if isinstance(row.src, Shard) and own is not None and own != row.src:
        way = f"{cls.__name__} works along dim {row.src.dim}: all_to_all first, or the same along dim {own.dim}"
        refusal = wrong_shard_dim(cls.__name__, located.name(0), axis, row.src.dim, own.dim, way)
    if refusal is not None and refusal.code == "SW412":  # nobody has chosen src and dst
        session.lose(f"the type of what {cls.__name__} makes of entries for each rank", user_site())
        return UNKNOWN_TYPE
    if refusal is not None:
        report(session, located, refusal, axis)
        return UNKNOWN_TYPE
    return after.type


def _beside(
    cls: type, operands: Sequence[torch.Tensor], types: Sequence[TensorType], axis: MeshAxis
) -> TensorType | None:
    """What is known of the results along other axes, on which the function is local; None if that is not clear."""
    bound: list[Bound] = []
    for at, (x, type) in enumerate(zip(operands, types, strict=True)):
        parts = parts_of(axis, type)
        kept = {one: type.get(one) for one in type.axes if one not in parts}
        bound.append(
            Bound(
                f"operand {at}", TensorType.of(kept), grad=x.requires_grad, label=f"operand {at}", shape=tuple(x.shape)
            )
        )
    if not any(type.axes != parts_of(axis, type) for type in types):
        return UNTYPED
    outcome = propagate(OpRule(cls.__name__), bound, current_entry(), False, scope=None)
    known = outcome.type if isinstance(outcome.type, TensorType) else None
    return None if outcome.refusals or not outcome.checked else known
