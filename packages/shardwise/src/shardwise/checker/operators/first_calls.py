"""Calls of which nothing is known yet: judged, refused or run, and remembered for the hot path (``ordinary.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.calls.tracing import anywhere, is_tracing
from shardwise.interop.tensors.own_lengths import RaggedTag
from shardwise.interop.tensors.own_positions import CountedTag, MovedTag
from shardwise.interop.tensors.tagging import is_pieced, tag_of
from shardwise.interop.tensors.zeros import is_zeros
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.tensor_type import TensorType, constant_type

from ..call.arguments import Op, has_scalar, unwrap
from ..parts import buffer_filling as filling
from ..parts.micro_batches import CUTTING, CuttingCall, cut_of
from ..parts.own_elements import takes_own_elements
from ..parts.own_positions import SUBTRACTING, counts, follow, follow_counted, moves
from ..parts.own_rows import rows_read
from ..parts.passed_pieces import refuse_unless_passed
from ..parts.rank_branches import is_added_by_number
from ..parts.residuals import DIFFERENCES, is_residual
from ..parts.varying_lengths import carry
from ..propagation.results import origin_of_result, tag_results
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from ..writes.dtensor_scales import rescaled_in_place
from ..writes.shared_memory import spread_parts
from ..writes.write_destination import settle, write
from . import scale_lost
from .counts_of_ranks import mark, power_of_ranks
from .foreign_numbers import has_foreign, run_of_foreign
from .judging import judge, position_lost
from .known_calls import CachedVerdict, KnownWrites, remember
from .merged_rows import RESHAPING, Reshaping, reshaping_of
from .parted_memory import parted, run_parted


class FirstCalls:
    """Those of one operator. What is found is put into ``verdicts``, of writes into ``writes``."""

    def __init__(self, op: Op, verdicts: dict[tuple[object, ...], CachedVerdict], writes: KnownWrites) -> None:
        self.op, self.verdicts, self.writes = op, verdicts, writes
        self._reshapes, self._cuts = op.rule.op in RESHAPING, op.rule.op in CUTTING

    def run(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Arguments,
        kwargs: Keywords,
        key: tuple[object, ...] | None = None,
        *,
        writing: bool = False,
    ) -> object:
        """The result of a call, with its type. ``key``: under which the call is remembered; None for one that is not.

        Errors: what ``diagnosis/reporter.py`` says of a call that is refused.
        """
        op = self.op
        if is_dtensor_call(args, kwargs):
            result = func(*args, **kwargs)
            if op.in_place:
                rescaled_in_place(op, args, kwargs)
            return result
        if session.numbers_left and key is None and has_foreign((*args, *kwargs.values())):
            return run_of_foreign(session, func, args, kwargs, writes=op.in_place)
        values = op.bind(args, kwargs)[1]
        if any(is_pieced(value) for value in values) and (parts := parted(op, args, kwargs, values)) is not None:
            return run_parted(session, op, func, args, kwargs, parts)
        return self._judged(session, func, args, kwargs, key, writing)

    def _moves(self, values: Sequence[object]) -> bool:
        """True of a call whose result is marked for more than the types of its operands."""
        return self.op.rule.op in SUBTRACTING and moves(values) is not None

    def _judged(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Arguments,
        kwargs: Keywords,
        key: tuple[object, ...] | None,
        writing: bool,
    ) -> object:
        op = self.op
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        if outcome.refusals and not op.in_place and (zeros := _declared_zeros(operands, values, outcome)):
            judged = judge(session, op, args, kwargs, {id(value): constant_type((), zero=True) for value in zeros})
            if not judged[2].refusals:  # their type is no part of a key
                key, (operands, values, outcome, blocked) = None, judged
        if outcome.refusals and op.rule.op == "getitem" and (read := rows_read(outcome, args)) is not outcome:
            key, outcome = None, read  # which rows are numbered is no part of a key
        beside = scale_lost.beside_ranks(session, operands, outcome)
        joined = scale_lost.axes_joined(session, op.rule, operands, outcome)
        by_ranks = power_of_ranks(session, op, operands) if session.averaged and session.only_observed else 0
        if beside or joined or by_ranks:
            key = None  # each line that does it is listed
        # What a call of these operators does is told by more than the types of its operands.
        amended: CuttingCall | Reshaping | None = None
        if outcome.results and counts(outcome.results) is not None:
            key = None  # its positions are marked
        if self._reshapes:
            amended = reshaping_of(session, op, func, args, kwargs, outcome)
            outcome = outcome if amended is None else amended.outcome
        elif self._cuts and outcome.refusals:
            amended = cut_of(session, op, args, kwargs, outcome)
        if outcome.refusals:
            told = session.compared and is_added_by_number(session, outcome)
            told = told or (op.rule.op in DIFFERENCES and is_residual(session, values, outcome))
            told = told or takes_own_elements(session, op, values, outcome)
            if not told:
                refuse_unless_passed(session, op, operands, values, outcome, blocked)
        elif position_lost(operands, outcome):
            session.lose("the type of positions that are moved to a rank's own part", user_location())
        elif scale_lost.is_message(op.rule, operands, outcome):
            session.lose(scale_lost.OF_MESSAGES, user_location())
        elif key is not None and not writing and amended is None and not self._moves(values):
            remember(self.verdicts, key, op, operands, values, outcome, args, kwargs)
        if amended is not None:
            outcome = amended.outcome
        # Asked before a write changes its operands.
        lost = scale_lost.axes_lost(operands, values, outcome) if outcome.type.scale else ()
        result = run_first(session, self.writes, func, args, kwargs, values, outcome, key if writing else None)
        if lost:
            scale_lost.note(session, result, lost)
        if joined:
            scale_lost.note_joined(result, joined)
        if beside:
            scale_lost.note_beside_ranks(session, op.name, result, beside)
        if by_ranks:
            mark(result, by_ranks)
        if amended is not None:
            amended.note(session, result)
        return result


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
    keeps = (
        key is not None and not session.beside and writes.keeps_types(outcome, args, kwargs)
    )  # before the write changes its operands
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
        if session.scale_lost and _is_parameter(destination):
            scale_lost.tell_step(session, [value for _, value in written])
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
        spread_parts(session, settled, origin)
    else:
        tag_results(result, args, outcome.type, origin, op.rule.view, outcome.results, origins)
        if any(tag.__class__ is RaggedTag for tag in tags):
            carry(op, args, kwargs, result)
    moved = moves(values) if op.rule.op in SUBTRACTING else None
    if moved is not None or any(tag.__class__ is MovedTag for tag in (*tags, tag_of(destination))):
        follow(op.rule.op, values, result, destination, moved)
    counted = counts(outcome.results) if outcome.results else None
    if counted is not None or any(tag.__class__ is CountedTag for tag in tags):
        follow_counted(values, result, counted)
    if traced:
        log_result(op.name, shown, result)
    return result


def _declared_zeros(operands: Sequence[Bound], values: Sequence[object], outcome: Outcome) -> list[object]:
    """Operands that are said to vary and are still the zeros that they were made as, where the call is refused for that
    alone. What a gradient may flow into is a parameter that starts at zero.
    """
    if any(one.refusal.code != "SW110" for one in outcome.refusals):
        return []
    refused = [one.axis for one in outcome.refusals]
    return [
        value
        for operand, value in zip(operands, values, strict=True)
        if is_zeros(value)
        and not operand.grad
        and isinstance(operand.type, TensorType)
        and all(operand.type.is_varying(axis) for axis in refused)
    ]


def _is_parameter(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.is_leaf and x.requires_grad


def _destination(op: Op, args: Arguments, kwargs: Keywords) -> Any:
    """The tensor (or tensors) that the call writes into; None if it makes a new one."""
    if kwargs.get("out") is not None:
        return kwargs["out"]
    if op.in_place or kwargs.get("inplace") is True:
        return args[0] if args else kwargs.get("input", kwargs.get("self"))
    return None
