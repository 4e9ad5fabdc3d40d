"""How is a typed collective or coercion checked? Its operand must be ``src`` along the axis; the result is ``dst``.

The moves are rows of ``op_rules/transitions.py``. The verdict comes before the call: a rejected collective has not
happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis, Finding
from shardwise.diagnostics.source import user_site
from shardwise.interop.located_call import Located, axis_text
from shardwise.interop.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.interop.tracing import is_tracing
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.mesh.regions import axes_inside, reinterpret
from shardwise.op_rules.transitions import ALIASES, DEFAULTS, MEETING, REDUCTIONS, ROUTES, find_move, letter
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.errors import RedistributeError, SpmdTypeError, SpmdValueError
from shardwise.types.placement import UNKNOWN, P, Shard, V, resolve_dim, to_local_type
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Ground, TensorType

from ..diagnosis.report import placement_text
from ..diagnosis.sharding_report import sharded_dim
from ..operators.ordinary import Handler
from ..operators.varying_lengths import check_shapes, same_shape
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .divergence import check_arrival
from .shard_moves import landed, mixed, moved_spec, reads_pieces_as_sum, restacked, unequal

_SIZES = ("split_sizes", "input_split_sizes", "output_split_sizes")
_BY_SIZES = "all_gather the lengths of {name} first, and give them to the call as split sizes"
_SINCE = {"R": "replicate", "I": "invariant", "V": "varying", "P": "partial"}


def collective(op: str) -> Handler:
    """The handler for the public function that is ``op``."""

    def handle(session: CheckSession, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        call = _Call(op, args, kwargs, session.local)
        if call.move is None or not isinstance(call.x, torch.Tensor):
            return _illegal(session, call, func, args, kwargs)
        axis = normalize_axis(call.axis)
        before = type_of(call.x)
        shown = [typed_shape(call.x)] if is_tracing() else []
        if session.diverging and call.move.meets(backward=call.x.requires_grad):
            check_arrival(session, op, call.x, axis)
        changed = before if axis.size() == 1 else _check(session, call, axis, before)
        if changed.spec is not None and not session.local:
            changed = _with_lengths(call, axis, before, changed)
        tag = tag_of(call.x)
        meets = call.move.op in MEETING
        if meets and not call.sizes:
            check_shapes(session, op, call.x, axis, _BY_SIZES)
        result = func(*args, **kwargs)
        session.checked += 1
        _give(result, call, changed, tag)
        same_shape(result, call.x, axis if meets else None)
        if is_tracing():
            log_result(op, shown, result)
        return result

    return handle


class _Call:
    """The arguments of one call that matter to its type."""

    def __init__(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], local: bool) -> None:
        defaults = DEFAULTS.get(op, DEFAULTS.get(ALIASES.get(op, op), {}))
        self.op = op
        self.x: Any = args[0] if args else kwargs.get("x")
        self.axis: DeviceMeshAxis = args[1] if len(args) > 1 else kwargs["axis"]
        self.src = kwargs.get("src", defaults.get("src"))
        self.dst = kwargs.get("dst", defaults.get("dst"))
        self.sizes = [sizes for name in _SIZES if (sizes := kwargs.get(name)) is not None]
        """Split sizes; one list per side of an exchange."""
        if not local and op == "all_to_all" and self.sizes and self.src is V and self.dst is V:
            # Pieces of different sizes are pieces and no entries: the dims are kept, and a spec can follow.
            self.src, self.dst = Shard(kwargs.get("concat_dim") or 0), Shard(kwargs.get("split_dim") or 0)
        route = ROUTES.get((letter(self.src), letter(self.dst)), "") if op == "redistribute" else op
        self.move = find_move(route, self.src, self.dst)
        if self.move is not None and self.move.expert and op != "redistribute" and not kwargs.get("expert_mode"):
            self.move = None  # the call itself refuses, and says what was probably meant


def _illegal(session: CheckSession, call: _Call, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A (src, dst) that does not exist: the call itself says why. A collecting run goes on where the shape is known."""
    try:
        return func(*args, **kwargs)
    except SpmdValueError as error:
        changes_shape = call.op != "reinterpret" and not {letter(call.src), letter(call.dst)} <= {"R", "I", "P"}
        if not session.collecting or changes_shape:
            raise
        session.report(error)
        result = call.x.clone()
        axis = normalize_axis(call.axis)
        set_tag(result, Tag(type_of(call.x).with_placements({axis: UNKNOWN} if axis.size() > 1 else {})))
        return result


def _check(session: CheckSession, call: _Call, axis: Any, before: TensorType) -> TensorType:
    """The result's type; what is wrong with the operand is reported."""
    dst = to_local_type(call.dst)
    if before.ground is Ground.UNKNOWN:
        return TensorType.of({axis: dst}, ground=Ground.UNKNOWN)  # the other axes are as unknown as they were
    if before.ground.is_constant and not before.axes:
        return TensorType.of({axis: dst}, None if session.local else landed(None, call.x.ndim, (axis,), call.dst))
    type, axes = _resolve(before, axis)
    if not axes:
        if session.strict:
            _report_missing(session, call, axis, before)
            return type.with_placements({axis: dst})
        return type
    wrong = [one for one in axes if not _admits(session, call, type.get(one), before)]
    for one in wrong:
        _report_source(session, call, one, axis, type.get(one))
    _check_shard(session, call, axis, type)
    changes: dict[Any, Any] = dict.fromkeys(axes, dst)
    spec = None
    if not session.local:
        spec, sure = _moved(session, call, axis, axes, type, sure=not wrong)
        if not sure and call.dst is V:
            changes = dict.fromkeys(axes, UNKNOWN)
    # In local mode a shard is only known where somebody has just said so; the next op forgets it again.
    return TensorType.of({**{a: type.get(a) for a in type.axes}, **changes}, spec)


def _moved(
    session: CheckSession, call: _Call, axis: Any, axes: tuple[Any, ...], type: TensorType, *, sure: bool
) -> tuple[Any, bool]:
    """The spec after the move, in global mode, and whether the move is right; what is wrong is reported.

    ``sure``  nothing has been reported about the operand yet.
    """
    mesh = current_entry()
    ndim = call.x.ndim
    local = frozenset(axes) & (mesh.local_axes if mesh is not None else frozenset())
    route = call.move.op if call.move is not None else call.op
    after = restacked(landed(type.spec, ndim, axes, None if local else call.dst), route, call.src, call.dst)
    if local and len(local) == len(axes):
        return after, sure
    if not sure or any(type.get(one) is UNKNOWN for one in axes):
        return after, False
    made_whole = isinstance(call.src, Shard) and type.ground.is_constant and sharded_dim(type, axes[0]) is None
    if made_whole and type.ground is not Ground.CONSTANT:
        return after, True  # every piece of a tensor with one value is like every other
    stuck: Any
    if local:
        stuck = mixed(call.op, axes, local)
    elif made_whole:
        stuck = Diagnosis(
            "SW406",
            f"{call.op} would put together equal pieces: a constant is made alike on every rank of {axis_text(axis)}",
            ("counted from 0 on every rank, positions of a piece are positions of the first piece",),
            (f"make all of it, and convert(..., {axis_argument(axis)}, src=R, dst={call.src!r}) for the piece",),
        )
    elif call.move is not None and call.move.op in REDUCTIONS and reads_pieces_as_sum(type, axes, call.src):
        stuck = Diagnosis(
            "SW201",
            f"{call.op} would add up the pieces of a tensor that is sharded over {axis_text(axis)}",
            ("the value meant by shards is their concatenation, not their sum",),
            (f"reinterpret(..., {axis_argument(axis)}, src=V, dst=P) first, if the pieces are addends",),
        )
    else:
        ordered = sorted(axes, key=lambda one: one.sort_key)
        stuck = moved_spec(route, type, ndim, ordered, P if route in REDUCTIONS else call.src, call.dst)
    if (
        not isinstance(stuck, Diagnosis)
        and not call.sizes
        and _needs_lengths(call)
        and not type.uneven.isdisjoint(axes)
    ):
        stuck = unequal(call.op, axes, call.src, call.dst)
    if not isinstance(stuck, Diagnosis):
        return stuck, True
    _report_stuck(session, call, axis, stuck)
    return after, False


def _report_stuck(session: CheckSession, call: _Call, axis: Any, stuck: Diagnosis) -> None:
    located = Located(call.op, [("x", call.x)])
    _report(session, call, located, axis, stuck.code, f"{located.name(0)}: {stuck.message}", stuck.facts, stuck.help)


def _resolve(type: TensorType, axis: Any) -> tuple[TensorType, tuple[Any, ...]]:
    """The operand's axes that ``axis`` stands for: itself, the axes that flatten to it, or after a change of mesh."""
    if axis in type:
        return type, (axis,)
    inside = axes_inside(axis, type.axes)
    if inside:
        return type, inside
    mesh = current_entry()
    if mesh is not None and type.axes and not all(one in mesh.axes for one in type.axes):
        try:
            moved = reinterpret(type, mesh.axes)
        except SpmdTypeError:
            return type, ()
        if axis in moved:
            return moved, (axis,)
        return moved, axes_inside(axis, moved.axes) or ()
    return type, ()


def _admits(session: CheckSession, call: _Call, place: Any, before: TensorType) -> bool:
    """True if an operand of placement ``place`` may be read as the move's source."""
    want = to_local_type(call.src)
    if place is want or place.is_unknown:
        return True
    if before.ground.is_constant:
        return want.is_equal or want.is_varying or before.ground is Ground.ZERO
    if call.move is not None and place.is_varying and want is P and call.move.op in REDUCTIONS:
        return True
    if not session.local and place is P and want.is_varying and _says_addends(call):
        return True
    if place.is_equal and want.is_equal:
        return not (call.x.requires_grad and torch.is_grad_enabled())
    return False


def _says_addends(call: _Call) -> bool:
    """True if a V operand would be declared a pending sum, which global types may have found out already."""
    assert call.move is not None, "what has no move is not checked"
    return call.move.op in REDUCTIONS or (call.move.op == "reinterpret" and call.dst is P)


def _with_lengths(call: _Call, axis: Any, before: TensorType, after: TensorType) -> TensorType:
    """``after``, which knows which of its shards may differ in length; those that are cut by split sizes may."""
    axes = {axis} if axis in after else set(axes_inside(axis, after.axes) or ())
    ragged = any(isinstance(sizes, Sequence) and any(size != sizes[0] for size in sizes) for sizes in call.sizes)
    kept = before.uneven & axes if call.move is not None and call.move.is_noop else set()
    return after.with_uneven((before.uneven - axes) | kept | (axes if ragged else set()))


def _needs_lengths(call: _Call) -> bool:
    """True if the call puts the pieces of a tensor together, and must know how long each is."""
    return isinstance(call.src, Shard) and call.move is not None and not call.move.is_noop


def _check_shard(session: CheckSession, call: _Call, axis: Any, type: TensorType) -> None:
    """S(i) against a sharding that is known."""
    known = partition_spec_get_shard(type.spec, axis)
    if known is None or not isinstance(call.src, Shard):
        return
    said = resolve_dim(call.src, call.x.ndim)
    if said != known.dim:
        located = Located(call.op, [("x", call.x)])
        name = located.name(0)
        along = axis_text(axis)
        message = f"{call.op} reads {name} as sharded on dim {said} over {along}, but it is sharded on dim {known.dim}"
        help_lines = (f"{call.op}({name}, {axis_argument(axis)}, src=S({known.dim}), dst={call.dst!r})",)
        _report(session, call, located, axis, "SW212", message, (), help_lines)


def _report_source(session: CheckSession, call: _Call, one: Any, axis: Any, place: Any) -> None:
    located = Located(call.op, [("x", call.x)])
    name = located.name(0)
    want = to_local_type(call.src)
    along = axis_text(one) if one is axis else f"{axis_text(one)} (part of {axis_text(axis)})"
    message = f"{call.op} expects {name} to be {placement_text(want)} over {along}, but it is {placement_text(place)}"
    # A sharding that is known is said in the help, because gathering it as V would stack the pieces.
    known = partition_spec_get_shard(type_of(call.x).spec, one) if place is V else None
    facts, help_lines = _advice(call, name, axis, place if known is None else known, want)
    _report(session, call, located, one, "SW201", message, facts, help_lines)


def _advice(call: _Call, name: str, axis: Any, place: Any, want: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an operand of placement ``place`` needs instead, when it was called as ``want``."""
    where, size = axis_argument(axis), axis.size()
    if want is P and place.is_equal:
        fact = f"{name} is complete already: summing {size} equal values multiplies it by {size}"
        return (fact,), (f"use {name} as it is, without {call.op}",)
    found = find_move(call.op, place, call.dst)
    if found is not None and not found.expert and not found.is_noop:
        return (), (f"{call.op}({name}, {where}, src={place!r}, dst={call.dst!r})",)
    route = ROUTES.get((letter(place), letter(call.dst)))
    if place is not to_local_type(call.dst) and route is not None:
        move = find_move(route, place, call.dst)
        if move is not None and not move.expert:
            return (), (f"{route}({name}, {where}, src={place!r}, dst={call.dst!r})",)
    if place is to_local_type(call.dst):
        return (f"{name} is {placement_text(place)} already",), (f"use {name} as it is, without {call.op}",)
    return (), ()


def _report_missing(session: CheckSession, call: _Call, axis: Any, before: TensorType) -> None:
    located = Located(call.op, [("x", call.x)])
    name = located.name(0)
    has = f"only about {', '.join(map(axis_text, before.axes))}" if before.axes else "nothing at all"
    message = f"{call.op} runs over {axis_text(axis)}, but {name} has no type for that axis"
    help_lines = (f"assert_type({name}, {{{axis_argument(axis)}: {call.src!r}}}) where {name} is made",)
    _report(session, call, located, axis, "SW207", message, (f"its type says {has}",), help_lines)


def _report(
    session: CheckSession,
    call: _Call,
    located: Located,
    axis: Any,
    code: str,
    message: str,
    facts: tuple[str, ...],
    help_lines: tuple[str, ...],
) -> None:
    operands = (located.operand(0, axis),)
    finding = Finding(code, message, located.location, call.op, axis_text(axis), operands, facts, help_lines)
    kind = RedistributeError if code == "SW410" else SpmdTypeError
    session.report(kind(message, code=code, help=help_lines, finding=finding))


def _give(result: Any, call: _Call, type: TensorType, tag: Tag | None) -> None:
    """Tag the result; an axis whose placement changed originates here."""
    if not isinstance(result, torch.Tensor):
        return
    before = None if tag is None else tag.type
    if result is call.x and before is type:
        return
    site = user_site(2)
    origins = []
    for axis, place in zip(type.axes, type.placements, strict=True):
        parent = None if tag is None else tag.origin_of(axis)
        if before is not None and before.get(axis) is place:
            origins.append(parent)
        else:
            origins.append(Origin(site, f"{_SINCE.get(repr(place), 'unknown')} over {axis!r} since this {call.op}"))
    set_tag(result, Tag(type, tuple(origins)))
    if result is call.x and isinstance(result, torch.Tensor) and before is not None:
        # An in-place collective: views of the tensor follow.
        from shardwise.interop.tagging import set_type

        set_tag(result, tag)
        set_type(result, type, tuple(origins))
