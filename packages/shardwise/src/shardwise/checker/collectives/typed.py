"""Typed collectives and coercions: the operand must be ``src`` along the axis, and the result is ``dst``.

The transitions are rows of ``op_rules/transitions.py``. The verdict comes before the call: a rejected collective has
not happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.errors import RedistributeError, SpmdTypeError, SpmdValueError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.fix import Fix
from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.located_call import LocatedCall, axis_text, placement_text, report
from shardwise.interop.calls.tracing import anywhere, is_tracing
from shardwise.interop.fixes.annotations import said_first
from shardwise.interop.fixes.collective_calls import as_said, cut_where_made, meant_axis, over_axis
from shardwise.interop.fixes.pieces import made_whole
from shardwise.interop.tensors.own_lengths import RaggedTag
from shardwise.interop.tensors.own_positions import CountedTag, MovedTag, mark_moved
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, set_type, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.op_rules.transition_types import TransitionCall, landed, parts_of, resolved, type_after
from shardwise.op_rules.transitions import (
    ALIASES,
    DEFAULTS,
    MEETING,
    REDUCTIONS,
    ROUTES,
    Transition,
    letter,
    reduced_source,
    transition,
)
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import UNKNOWN, I, P, Placement, R, Shard, V, resolve_dim, to_local_type
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Exponent, Ground, TensorType

from ..diagnosis.collective_findings import no_type_on_axis, wrong_shard_dim, wrong_source
from ..diagnosis.gradient_findings import gradient_sum_not_owed
from ..operators.ordinary import Handler
from ..parts.own_positions import check_combined, check_summed
from ..parts.row_orders import set_order
from ..parts.varying_lengths import check_shapes, same_shape
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .divergence import check_arrival
from .rows_exchanged import order_after_typed

_SIZES = ("split_sizes", "input_split_sizes", "output_split_sizes")
_BY_SIZES = "all_gather the lengths of {name} first, and give them to the call as split sizes"
_SHARD_SIDE = {"shard": "dst", "unshard": "src"}
"""Which argument of an alias has to be S(i)."""
_SINCE = {"R": "replicate", "I": "invariant", "V": "varying", "P": "partial"}


def collective(op: str) -> Handler:
    """The handler for the public function that is ``op``."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        if is_dtensor_call(args, kwargs) or (len(args) < 2 and "axis" not in kwargs):
            return func(*args, **kwargs)  # without an axis the call refuses itself
        call = TypedCall(op, args, kwargs, session.local)
        row = call.row
        if row is None or not isinstance(call.x, torch.Tensor):
            return _illegal(session, call, func, args, kwargs)
        axis = normalize_axis(call.axis)
        before = type_of(call.x)
        traced = anywhere.blocks > 0 and is_tracing()
        shown = [typed_shape(call.x)] if traced else []
        if session.diverging and row.meets(backward=call.x.requires_grad):
            check_arrival(session, op, call.x, axis)
        changed = before if axis.size() == 1 else _check(session, call, axis, before)
        if changed.axes and axis.size() > 1:
            changed = changed.rescaled(_rescaling(call, before, parts_of(axis, changed)))
        if changed.spec is not None and not session.local:
            changed = _with_lengths(call, axis, before, changed)
        tag = tag_of(call.x)
        meets = row.op in MEETING
        if row.op in REDUCTIONS and isinstance(tag, MovedTag):
            check_summed(session, op, call.x, axis)
        if row.op in REDUCTIONS and isinstance(tag, CountedTag):
            check_combined(session, op, call.x, axis)
        if meets and axis.size() > 1:
            session.exchanged.setdefault(axis, set()).add(True)  # the call says of what type its operand is
        ragged = isinstance(tag, RaggedTag)
        if ragged and meets and not call.sizes:
            check_shapes(session, op, call.x, axis, _BY_SIZES)
        reorders = session.rows_moved or (op == "all_to_all" and not session.local)
        order = order_after_typed(session, op, axis, call.x, call.src, call.dst, call.sizes) if reorders else ()
        result = func(*args, **kwargs)
        session.checked += 1
        _give(session, result, call, changed, tag)
        if reorders and isinstance(result, torch.Tensor):
            set_order(session, result, order)
        if ragged:
            same_shape(result, call.x, axis if meets else None)
        if traced:
            log_result(op, shown, result)
        return result

    return handle


class TypedCall:
    """The arguments of one call that matter to its type."""

    def __init__(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], local: bool) -> None:
        defaults = DEFAULTS.get(op, DEFAULTS.get(ALIASES.get(op, op), {}))
        self.op = op
        self.x: Any = args[0] if args else kwargs.get("x")
        self.axis: DeviceMeshAxis = args[1] if len(args) > 1 else kwargs["axis"]
        src: Any = kwargs.get("src", defaults.get("src"))
        self.src: Any = reduced_source(src, kwargs.get("op", "sum"))
        self.dst = kwargs.get("dst", defaults.get("dst"))
        self.divides = kwargs.get("op") == "avg"
        self.makes_addends = self.dst is P and letter(self.src) in ("R", "I")
        self.sizes = [sizes for name in _SIZES if (sizes := kwargs.get(name)) is not None]
        """Split sizes; one list per side of an exchange."""
        if not local and op == "all_to_all" and self.sizes and self.src is V and self.dst is V:
            # Pieces of different sizes are pieces and no entries: the dims are kept, and a spec can follow.
            self.src, self.dst = Shard(kwargs.get("concat_dim") or 0), Shard(kwargs.get("split_dim") or 0)
        routed = op == "redistribute"
        route = ROUTES.get((letter(self.src), letter(self.dst)), "") if routed else op
        found = transition(route, self.src, self.dst, expert_mode=routed or kwargs.get("expert_mode") is True)
        known = isinstance(getattr(self, _SHARD_SIDE.get(op, ""), Shard(0)), Shard)
        counts = kwargs.get("op_dtype") is not None or kwargs.get("out_dtype") is not None
        if known and not counts and getattr(self.x, "dtype", None) is torch.bool and isinstance(found, Transition):
            known = "P" not in (found.reads, found.dst)  # truth values are not summed
        self.row: Transition | None = found if known and isinstance(found, Transition) else None
        """None: the call itself refuses, and says what was probably meant."""
        self.is_refused = False
        """Its operand has been found wrong, so that its result has a scale that nobody knows."""


def _illegal(
    session: CheckSession,
    call: TypedCall,
    func: TorchFunction,
    args: Arguments,
    kwargs: Keywords,
) -> object:
    """A (src, dst) that does not exist: the call itself says why. A collecting run goes on where the shape is known."""
    try:
        return func(*args, **kwargs)
    except SpmdValueError as error:
        changes_shape = call.op != "reinterpret" and not {letter(call.src), letter(call.dst)} <= {"R", "I", "P"}
        if not session.collecting or changes_shape:
            raise
        _report_illegal(session, call, error)
        result = call.x.clone()
        axis = normalize_axis(call.axis)
        set_tag(result, Tag(type_of(call.x).with_placements({axis: UNKNOWN} if axis.size() > 1 else {})))
        return result


def _report_illegal(session: CheckSession, call: TypedCall, error: SpmdValueError) -> None:
    """What the call itself says, in the program's names, with what of it is an edit."""
    located = LocatedCall(call.op, [("x", call.x)])
    said = transition(call.op, call.src, call.dst, axis=call.axis, x=located.name(0))
    if isinstance(said, Transition) or said.code != error.code:
        session.report(error)
        return
    report(session, located, replace(said, fixes=as_said(located, said.help)), normalize_axis(call.axis))


def _check(session: CheckSession, call: TypedCall, axis: MeshAxis, before: TensorType) -> TensorType:
    """The result's type; what is wrong with the operand is reported."""
    dst = to_local_type(call.dst)
    if before.ground is Ground.UNKNOWN:
        return TensorType.of({axis: dst}, ground=Ground.UNKNOWN)  # the other axes are as unknown as they were
    if before.ground.is_constant and not before.axes:
        return TensorType.of({axis: dst}, None if session.local else landed(None, call.x.ndim, (axis,), call.dst))
    type, axes = resolved(axis, before, current_entry())
    if not axes:
        if session.strict:
            _report_missing(session, call, axis, before)
            return type.with_placements({axis: dst})
        return type
    wrong = [one for one in axes if not _admits(session, call, type.get(one), type, (one,))]
    for one in wrong:
        _report_source(session, call, one, axis, type.get(one))
    sums = call.row is not None and call.row.op in REDUCTIONS and call.src in (P, V)
    if sums and not wrong:  # V is read as P, but a gradient of V is that of this rank's piece of the parameter
        varying = [one for one in axes if type.is_varying(one)]
        wrong = [one for one in varying if gradient_sum_not_owed(session, call.op, one, call.x, type)]
    misread = _check_shard(session, call, axis, type)
    call.is_refused = bool(wrong) or misread
    if misread:  # the pieces are put together along another dim: of no type, so that nothing is said of it again
        return type.with_placements(dict.fromkeys(axes, UNKNOWN))
    if session.local:
        # A shard is only known where somebody has just said so; the next op forgets it again.
        return type.with_placements(dict.fromkeys(axes, dst)).with_spec(None).with_ground(Ground.ABSENT)
    return _after(session, call, axis, axes, type, sure=not wrong)


def _after(
    session: CheckSession, call: TypedCall, axis: MeshAxis, axes: tuple[MeshAxis, ...], type: TensorType, *, sure: bool
) -> TensorType:
    """The result's type in global mode; what is wrong with the sharding is reported."""
    assert call.row is not None, "what has no row is not checked"
    mesh = current_entry()
    step = TransitionCall(call.row.op, axis, axes, call.src, call.dst, call.x.ndim, call.op)
    local_axes = mesh.local_axes if mesh is not None else frozenset()
    after = type_after(step, type, local_axes, sized=bool(call.sizes), sure=sure)
    if after.refusal is not None:
        located = LocatedCall(call.op, [("x", call.x)])
        name = located.name(0)
        ways = tuple(way.replace("(...,", f"({name},") for way in after.refusal.help)
        fixes = made_whole(located, axis) if after.refusal.code == "SW406" and call.dst in (R, I) else ()
        ways = tuple(fix.help for fix in fixes) or ways
        said = replace(after.refusal, message=f"{name}: {after.refusal.message}", help=ways, fixes=fixes)
        _report(session, located, axis, said)
        if after.refusal.code == "SW201":
            return after.type.with_placements(dict.fromkeys(axes, UNKNOWN))
    return after.type


def _rescaling(call: TypedCall, before: TensorType, axes: Sequence[MeshAxis]) -> dict[MeshAxis, Exponent]:
    """The exponents after the call along its axes: equal values read as addends count once per rank."""
    if call.is_refused:
        return dict.fromkeys(axes)
    divided = 1 if call.divides else 0
    changes: dict[MeshAxis, Exponent] = {}
    for axis in axes:
        exponent = before.exponent(axis)
        if before.is_varying(axis) and (_adds(call) or call.dst is P):
            changes[axis] = None  # what varies is a list: nobody says that its sum is what one device computes
        summed = (before.is_equal(axis) and call.src is P) or (call.op == "reinterpret" and call.makes_addends)
        if exponent is not None and (summed or divided):
            changes[axis] = exponent + int(summed) - divided
    return changes


def _admits(
    session: CheckSession, call: TypedCall, place: Placement, before: TensorType, parts: Sequence[MeshAxis] = ()
) -> bool:
    """True if an operand of placement ``place`` may be read as the transition's source."""
    want = to_local_type(call.src)
    if place is want or place.is_unknown:
        return True
    if before.ground.is_constant:
        return want.is_equal or want.is_varying or before.ground is Ground.ZERO
    if place.is_varying and want.is_partial and _adds(call):
        return True
    if not session.local and place is P and want.is_varying and _says_addends(call):
        return True
    if place.is_equal and want is P and _adds(call):
        return all(before.exponent(one) == -1 for one in parts)  # n times a value divided by n
    if place.is_equal and want.is_equal:
        return not (takes_gradient(call.x) and torch.is_grad_enabled())
    return False


def _says_addends(call: TypedCall) -> bool:
    """True if a V operand would be declared a pending sum, which global types may have found out already."""
    return _adds(call) or (call.op == "reinterpret" and call.dst is P)


def _adds(call: TypedCall) -> bool:
    return call.row is not None and call.row.op in REDUCTIONS


def _with_lengths(call: TypedCall, axis: MeshAxis, before: TensorType, after: TensorType) -> TensorType:
    """``after``, which knows which of its shards may differ in length; those that are cut by split sizes may."""
    axes = set(parts_of(axis, after))
    ragged = any(isinstance(sizes, Sequence) and any(size != sizes[0] for size in sizes) for sizes in call.sizes)
    kept = before.uneven & axes if call.row is not None and call.row.is_noop else set()
    return after.with_uneven((before.uneven - axes) | kept | (axes if ragged else set()))


def _check_shard(session: CheckSession, call: TypedCall, axis: MeshAxis, type: TensorType) -> bool:
    """S(i) against a sharding that is known; True if another was found, and reported."""
    known = partition_spec_get_shard(type.spec, axis)
    if known is None or not isinstance(call.src, Shard):
        return False
    said = resolve_dim(call.src, call.x.ndim)
    if said != known.dim:
        located = LocatedCall(call.op, [("x", call.x)])
        name = located.name(0)
        way = f"{call.op}({name}, {axis_argument(axis)}, src=S({known.dim}), dst={call.dst!r})"
        told = wrong_shard_dim(call.op, name, axis, said, known.dim, way)
        fixes = located.replaced(way, call.op, axis_argument(axis), f"S({known.dim})", repr(call.dst))
        made = cut_where_made(call.x, name, axis, known.dim, said)
        help = (*told.help, *(fix.help for fix in made))
        _report(session, located, axis, replace(told, help=help, fixes=(*fixes, *made)))
    return said != known.dim


def _report_source(session: CheckSession, call: TypedCall, one: MeshAxis, axis: MeshAxis, place: object) -> None:
    located = LocatedCall(call.op, [("x", call.x)])
    name = located.name(0)
    want = to_local_type(call.src)
    along = axis_text(one) if one is axis else f"{axis_text(one)} (part of {axis_text(axis)})"
    # A sharding that is known is said in the help, because gathering it as V would stack the pieces.
    known = partition_spec_get_shard(type_of(call.x).spec, one) if place is V else None
    facts, step = _advice(call, name, axis, place if known is None else known, want)
    help_lines: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    if step is not None:
        text = f"use {name} as it is, without {call.op}"
        if step:
            op, where, src, dst = step
            text = f"{op}({name}, {where}, src={src}, dst={dst})"
        help_lines, fixes = (text,), located.replaced(text, *step)
    meant = meant_axis(type_of(call.x), one, lambda other: other is want)
    if meant is not None:
        told = f"{call.op}({name}, {axis_argument(meant)}, src={call.src!r}, dst={call.dst!r})"
        help_lines, fixes = (told, *help_lines), (*over_axis(located.location, meant, told), *fixes)
    said = wrong_source(call.op, name, placement_text(want), along, place, facts, help_lines)
    _report(session, located, one, replace(said, fixes=fixes))


def _advice(
    call: TypedCall, name: str, axis: MeshAxis, place: Any, want: object
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """What is so, and what an operand of placement ``place`` needs instead, when it was called as ``want``.

    That is an operation with its axis, source and destination; none of them where the operand is right as it is.
    """
    where, size = axis_argument(axis), axis.size()
    facts: tuple[str, ...] = ()
    ops = [call.op, "" if place is to_local_type(call.dst) else ROUTES.get((letter(place), letter(call.dst)), "")]
    if want is P and place.is_equal:
        facts = (f"{name} is complete already: summing {size} equal values multiplies it by {size}",)
        if to_local_type(call.dst).is_equal:
            return facts, ()
        ops = ["convert"]
    for op in ops:
        found = transition(op, place, call.dst)
        if isinstance(found, Transition) and not (op == call.op and found.is_noop):
            return facts, (op, where, repr(place), repr(call.dst))
    if place is to_local_type(call.dst):
        return (f"{name} is {placement_text(place)} already",), ()
    return facts, None


def _report_missing(session: CheckSession, call: TypedCall, axis: MeshAxis, before: TensorType) -> None:
    located = LocatedCall(call.op, [("x", call.x)])
    name = located.name(0)
    has = f"only about {', '.join(map(axis_text, before.axes))}" if before.axes else "nothing at all"
    way = f"assert_type({name}, {{{axis_argument(axis)}: {call.src!r}}}) where {name} is made"
    said = no_type_on_axis(call.op, name, axis, way, (f"its type says {has}",))
    _report(session, located, axis, replace(said, fixes=said_first(located, axis, call.src, way)))


def _report(session: CheckSession, located: LocatedCall, axis: MeshAxis, said: Diagnosis) -> None:
    report(session, located, said, axis, error=RedistributeError if said.code == "SW410" else SpmdTypeError)


def _give(session: CheckSession, result: object, call: TypedCall, type: TensorType, tag: Tag | None) -> None:
    """Tag the result; an axis whose placement changed originates here."""
    if not isinstance(result, torch.Tensor):
        return
    before = None if tag is None else tag.type
    if result is call.x and before is type:
        return
    site = user_site(2)
    origins: list[Any] = []
    for axis, place in zip(type.axes, type.placements, strict=True):
        parent = None if tag is None else tag.origin_of(axis)
        if before is not None and before.get(axis) is place:
            origins.append(parent)
        else:
            origins.append(Origin(site, f"{_SINCE.get(repr(place), 'unknown')} over {axis!r} since this {call.op}"))
            origins[-1].sharding = not session.local
    set_tag(result, Tag(type, tuple(origins)))
    if isinstance(tag, MovedTag) and call.row is not None and call.row.op not in MEETING:
        mark_moved(result, tag.moved, rows=tag.rows)
    if result is call.x and isinstance(result, torch.Tensor) and before is not None:
        # An in-place collective: views of the tensor follow.
        set_tag(result, tag)
        set_type(result, type, tuple(origins))
