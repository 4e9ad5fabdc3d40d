"""The handler of an ordinary operator: the hot path of the checker, and the slow one behind it.

The hot path builds a key from the operands' interned types, finds the verdict in the operator's own dictionary
(``known_calls.py``), runs the operator and hands the type on. Whatever it does not understand (typed scalars, nested
containers, new tensor classes, ``out=``, refusals) goes the slow path, which also fills the dictionary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shardwise.diagnostics.source import user_location
from shardwise.interop.calls.tracing import anywhere, is_tracing
from shardwise.interop.tensors.own_lengths import RaggedTag
from shardwise.interop.tensors.tagging import ATTRIBUTE, Tag, is_pieced, tag_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..call.arguments import Op, has_scalar, unwrap
from ..call.cache_key import COUNT, extend, extend_named, full_key, gradient_bits, number_key
from ..parts import buffer_filling as filling
from ..parts.micro_batches import CUTTING, cut_of
from ..parts.passed_pieces import refuse_unless_passed
from ..parts.rank_branches import is_added_by_number
from ..parts.varying_lengths import carry
from ..propagation.results import origin_of_result, tag_results
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from ..state.tensor_classes import NUMBERS, PLAIN, TENSORS, is_dtensor_call
from ..writes.dtensor_scales import rescaled_in_place
from ..writes.write_destination import settle, write
from . import scale_lost
from .foreign_numbers import has_foreign, run_of_foreign
from .judging import judge, position_lost
from .known_calls import SPLIT, CachedVerdict, KnownWrites, remember
from .listed_pieces import handing_on
from .merged_rows import RESHAPING, is_ordered, reshaping_of
from .parted_memory import parted, run_parted

Handler = Callable[[CheckSession, Any, Sequence[Any], Mapping[str, Any]], Any]


def ordinary(op: Op) -> Handler:
    """The handler for operator ``op``."""
    verdicts: dict[tuple[Any, ...], CachedVerdict] = {}
    writes = KnownWrites(op)
    is_view, reshapes, cuts = op.rule.view, op.rule.op in RESHAPING, op.rule.op in CUTTING

    def handle(
        session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords, ordered: bool = False
    ) -> object:
        """``ordered``: the order of the operands' rows has been looked at."""
        if kwargs and writes_by_name(kwargs):
            return handle_write(session, func, args, kwargs)
        tags: list[Tag | None] = []
        key: list[Any] | None
        if session.local:
            mesh = session.here.entry
            key = [session.strict, None if mesh is None else mesh.reach]
            # The loop over args is written out, because this is where a checked call spends its time.
            value: Any
            for value in args:
                cls = value.__class__
                if cls is Tensor or cls in TENSORS:
                    tag = getattr(value, ATTRIBUTE, None)
                    tags.append(tag)
                    if tag.__class__ is Tag:
                        if tag.cell is None or tag.cell.writes is None:
                            key.append(tag.type)
                        elif tag.pieces is None:
                            key.append(tag.current())
                        else:
                            return slow(session, func, args, kwargs)
                    elif tag is None:
                        key.append(UNTYPED)
                    else:
                        return slow(session, func, args, kwargs)
                elif cls is int:
                    key.append(value == 0 if -2 < value < 2 else COUNT)
                elif cls in NUMBERS:
                    key.append(number_key(value))
                elif cls in PLAIN:
                    key.append(None)
                elif not extend(value if cls is tuple or cls is list else (value,), key, tags):
                    return slow(session, func, args, kwargs)
            if kwargs and not extend_named(kwargs, key, tags):
                return slow(session, func, args, kwargs)
        else:
            if session.rows_moved and not ordered:
                call = functools.partial(handle, session, func, args, kwargs, ordered=True)
                return handing_on(session, op, call, args, kwargs)
            if session.rows_moved and is_ordered(op, args):
                return slow(session, func, args, kwargs)
            key = full_key(session, args, kwargs, tags)
            if key is None:
                return slow(session, func, args, kwargs)
        found = tuple(key)
        verdict = verdicts.get(found)
        if verdict is SPLIT:
            found = (*found, *gradient_bits(args, kwargs))
            verdict = verdicts.get(found)
        if verdict is None or anywhere.blocks:
            return slow(session, func, args, kwargs, found)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if result.__class__ is Tensor and not is_view and not verdict.results:
            type, reuse = verdict.type, verdict.reuse
            if verdict.checked:
                session.checked += 1
            else:
                session.unchecked += 1
                if type is UNTYPED:
                    return result
            tag = None if reuse is None else tags[reuse]
            if tag is None:
                result._shardwise = Tag(type, origin_of_result(verdict.sources, tags))  # type: ignore[attr-defined]
            else:
                result._shardwise = tag if tag.cell is None and tag.type is type else Tag(type, tag.origin)  # type: ignore[attr-defined]
        elif is_view and args and result.__class__ is Tensor and verdict.hand_on_view(result, args[0], tags):
            session.checked += 1
        else:
            verdict.hand_on(session, result, args, tags, is_view)
        return result

    def handle_write(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        """A call that writes into its first operand."""
        if session.rows_moved and not session.local:
            call = functools.partial(slow, session, func, args, kwargs, writing=True)
            return handing_on(session, op, call, args, kwargs)
        key = writes.key(session, args, kwargs)
        known, result = writes.run(session, func, args, kwargs, key)
        return result if known else slow(session, func, args, kwargs, key, writing=True)

    def slow(
        session: CheckSession,
        func: TorchFunction,
        args: Arguments,
        kwargs: Keywords,
        key: tuple[object, ...] | None = None,
        *,
        writing: bool = False,
    ) -> object:
        if is_dtensor_call(args, kwargs):
            result = func(*args, **kwargs)
            if op.in_place:
                rescaled_in_place(op, args, kwargs)
            return result
        if session.numbers_left and key is None and has_foreign((*args, *kwargs.values())):
            return run_of_foreign(session, func, args, kwargs, writes=op.in_place)
        operands, values = op.bind(args, kwargs)
        if any(is_pieced(value) for value in values) and (parts := parted(op, args, kwargs, values)) is not None:
            return run_parted(session, op, func, args, kwargs, parts)
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        reshaping = reshaping_of(session, op, func, args, kwargs, outcome) if reshapes else None
        if reshaping is not None:
            outcome = reshaping.outcome
        cut = cut_of(session, op, args, kwargs, outcome) if cuts and outcome.refusals else None
        if outcome.refusals:
            if not (session.compared and is_added_by_number(session, outcome)):
                refuse_unless_passed(session, op, operands, values, outcome, blocked)
        elif position_lost(operands, outcome):
            session.lose("the type of positions that are moved to a rank's own part", user_location())
        elif key is not None and not writing and reshaping is None:
            remember(verdicts, key, op, operands, values, outcome, args, kwargs)
        if cut is not None:
            outcome = cut.outcome
        # Asked before a write changes its operands.
        lost = scale_lost.axes_lost(operands, values, outcome) if outcome.type.scale else ()
        result = run_first(session, writes, func, args, kwargs, values, outcome, key if writing else None)
        if lost:
            scale_lost.note(session, result, lost)
        if cut is not None:
            cut.note(session, result)
        if reshaping is not None:
            reshaping.note(session, result)
        return result

    return handle_write if op.in_place else handle


def run_first(
    session: CheckSession,
    writes: KnownWrites,
    func: TorchFunction,
    args: Arguments,
    kwargs: Keywords,
    values: Sequence[object],
    outcome: Outcome,
    key: tuple[object, ...] | None,
) -> object:
    """``run``; a write that keeps all types is known from here on by its ``key``."""
    keeps = key is not None and writes.keeps_types(outcome, args, kwargs)  # before the write changes its operands
    result = run(session, writes.op, func, args, kwargs, values, outcome)
    if keeps and key is not None:
        writes.remember(key, outcome.checked, not outcome.checked)
    return result


def run(
    session: CheckSession,
    op: Op,
    func: TorchFunction,
    args: Arguments,
    kwargs: Keywords,
    values: Sequence[object],
    outcome: Outcome,
) -> object:
    """Run a call that has been judged and give its results their types; the destination is checked first."""
    # Read before the call, because an in-place call changes its operands.
    tags = [tag_of(value) for value in values]
    origin = origin_of_result(outcome.sources, tags)
    origins = [origin_of_result(sources, tags) for sources in outcome.origins]
    destination = _destination(op, args, kwargs)
    settled: list[tuple[torch.Tensor, TensorType]] = []
    if destination is not None:
        if op.name in filling.WRITES:
            filling.note(op.name, destination, args)
        written = [(op.param_at(at), value) for at, value in enumerate(values[:3]) if value is not destination]
        # transpose_ and its like write nothing: the same elements get other dims.
        renamed = op.in_place and op.rule.view and outcome.type.axes
        settled = (
            [(destination, outcome.type)]
            if renamed
            else settle(session, op.name, destination, outcome.type, written, outcome.results)
        )
    if has_scalar(args, kwargs):
        args = [unwrap(value) for value in args]
        kwargs = {name: unwrap(value) for name, value in kwargs.items()}
    traced = anywhere.blocks > 0 and is_tracing()
    shown = [typed_shape(value) for value in values if isinstance(value, torch.Tensor)] if traced else []
    result = func(*args, **kwargs)
    if outcome.checked:
        session.checked += 1
    else:
        session.unchecked += 1
    if destination is not None:
        write(settled, origin, op.name, values)
    else:
        tag_results(result, args, outcome.type, origin, op.rule.view, outcome.results, origins)
        if any(tag.__class__ is RaggedTag for tag in tags):
            carry(op, args, kwargs, result)
    if traced:
        log_result(op.name, shown, result)
    return result


def writes_by_name(kwargs: Keywords) -> bool:
    """True if a keyword names a destination; activations pass ``inplace=False`` on every call."""
    return kwargs.get("out") is not None or bool(kwargs.get("inplace"))


def _destination(op: Op, args: Arguments, kwargs: Keywords) -> Any:
    """The tensor (or tensors) that the call writes into; None if it makes a new one."""
    if kwargs.get("out") is not None:
        return kwargs["out"]
    if op.in_place or kwargs.get("inplace") is True:
        return args[0] if args else kwargs.get("input", kwargs.get("self"))
    return None
