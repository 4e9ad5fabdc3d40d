"""How is a call of an ordinary operator checked? The hot path of the checker, and the slow one behind it.

The hot path builds a key from the operands' interned types, finds the verdict in the operator's own dictionary, runs
the operator and hands the type on. Whatever it does not understand (typed scalars, nested containers, new tensor
classes, ``out=``, refusals) goes the slow path, which also fills the dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from shardwise.interop.tagging import ATTRIBUTE, RaggedTag, Tag, tag_of, type_of
from shardwise.interop.torch_compat import count_function_modes, no_torch_function
from shardwise.interop.tracing import anywhere, is_tracing
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import Outcome, propagate
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.shape_templates import GIVES_SHAPE, shaped
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..call.arguments import Op, has_scalar, unwrap
from ..call.cache_key import extend, extend_fully, extend_named, flat_arguments, gradient_bits, has_gradient_bits
from ..diagnosis.reporter import refuse
from ..propagation.foreign_mesh import judged_elsewhere
from ..propagation.results import origin_of_result, tag_results
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from ..state.tensor_classes import NUMBERS, PLAIN, TENSORS, is_dtensor_call, learn
from . import buffer_filling as filling
from .varying_lengths import carry
from .write_destination import settle, write

Handler = Callable[[CheckSession, Any, Sequence[Any], Mapping[str, Any]], Any]
Tags = Sequence[Tag | None]


class CachedVerdict:
    """A cached answer. ``sources`` and ``reuse`` count the call's tensors: where each placement came from, and whose
    tag the result can carry on as it is. ``results`` and ``origins``: types and sources of each result, if they differ.
    """

    __slots__ = ("checked", "origins", "results", "reuse", "sources", "type")

    def __init__(
        self,
        type: TensorType,
        sources: tuple[int | None, ...],
        checked: bool,
        results: tuple[TensorType, ...] = (),
        origins: tuple[tuple[int | None, ...], ...] = (),
    ) -> None:
        self.checked = checked
        self.origins = origins
        self.type = type
        self.results = results
        self.sources = sources
        self.reuse = sources[0] if sources and len(set(sources)) == 1 else None


_LIMIT = 4096
"""Verdicts kept per operator; global ones depend on shapes and indices, which a program may vary without end."""
SPLIT = CachedVerdict(UNTYPED, (), False)
"""Marks a key whose answer also depends on which operands can receive a gradient."""


def ordinary(op: Op) -> Handler:
    """The handler for operator ``op``."""
    verdicts: dict[tuple[Any, ...], CachedVerdict] = {}
    is_view = op.rule.view

    def handle(session: CheckSession, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if not session.local:
            return handle_globally(session, func, args, kwargs)
        mesh = current_entry()
        key: list[Any] = [session.strict, None if mesh is None else mesh.axes]
        tags: list[Tag | None] = []
        # The loop over args is written out, because this is where a checked call spends its time.
        for value in args:
            cls = value.__class__
            if cls in TENSORS:
                tag = getattr(value, ATTRIBUTE, None)
                tags.append(tag)
                if tag is None:
                    key.append(UNTYPED)
                elif tag.__class__ is Tag:
                    key.append(tag.type if tag.cell is None else tag.current())
                else:
                    return slow(session, func, args, kwargs)
            elif cls in NUMBERS:
                key.append(value == 0)
            elif cls in PLAIN:
                key.append(None)
            elif not (cls is tuple or cls is list) or not extend(value, key, tags):
                return slow(session, func, args, kwargs)
        if kwargs and (_writes(kwargs) or not extend_named(kwargs, key, tags)):
            return slow(session, func, args, kwargs)
        found = tuple(key)
        verdict = verdicts.get(found)
        if verdict is SPLIT:
            found = (*found, *gradient_bits(args, kwargs))
            verdict = verdicts.get(found)
        if verdict is None or anywhere.blocks:
            return slow(session, func, args, kwargs, found)
        result = func(*args, **kwargs)
        type = verdict.type
        if verdict.checked:
            session.checked += 1
        else:
            session.unchecked += 1
            if type is UNTYPED:
                return result
        if result.__class__ is torch.Tensor and not is_view:
            reuse = verdict.reuse
            if reuse is None:
                result._shardwise = Tag(type, origin_of_result(verdict.sources, tags))  # type: ignore[attr-defined]
                return result
            tag = tags[reuse]
            if tag.cell is None and tag.type is type:  # type: ignore[union-attr]
                result._shardwise = tag  # type: ignore[attr-defined]
            else:
                result._shardwise = Tag(type, tag.origin)  # type: ignore[union-attr, attr-defined]
            return result
        _hand_on(result, args, verdict, tags, is_view)
        return result

    def handle_globally(session: CheckSession, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The same with global types, whose answer also depends on shapes and on every plain argument."""
        mesh = current_entry()
        key: list[Any] = [session.strict, session.partials, mesh and mesh.axes, mesh and mesh.local_axes]
        tags: list[Tag | None] = []
        if _writes(kwargs):
            return slow(session, func, args, kwargs)
        if count_function_modes():  # another mode, such as the stand-in of a device, would be asked for every shape
            with no_torch_function():
                usual = extend_fully((*args, *kwargs.items()), key, tags)
        else:
            usual = extend_fully((*args, *kwargs.items()), key, tags)
        if not usual:
            return slow(session, func, args, kwargs)
        found = tuple(key)
        verdict = verdicts.get(found)
        if verdict is SPLIT:
            found = (*found, *gradient_bits(args, kwargs))
            verdict = verdicts.get(found)
        if verdict is None or anywhere.blocks:
            return slow(session, func, args, kwargs, found)
        result = func(*args, **kwargs)
        if verdict.checked:
            session.checked += 1
        else:
            session.unchecked += 1
        type, reuse = verdict.type, verdict.reuse
        tag = tags[reuse] if reuse is not None else None
        if result.__class__ is torch.Tensor and not is_view and tag is not None and not verdict.results:
            result._shardwise = tag if tag.cell is None and tag.type is type else Tag(type, tag.origin)  # type: ignore[attr-defined]
        else:
            _hand_on(result, args, verdict, tags, is_view)
        return result

    def slow(
        session: CheckSession,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        key: tuple[Any, ...] | None = None,
    ) -> Any:
        learn((*args, *kwargs.values()))
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        if outcome.refusals:
            refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
        elif key is not None:
            _remember(verdicts, key, op, operands, values, outcome, args, kwargs)
        return run(session, op, func, args, kwargs, values, outcome)

    return slow if op.in_place else handle


def _hand_on(result: Any, args: Sequence[Any], verdict: CachedVerdict, tags: Tags, is_view: bool) -> None:
    """Give the results of a known call their types."""
    origin = origin_of_result(verdict.sources, tags)
    origins = [origin_of_result(sources, tags) for sources in verdict.origins] if verdict.origins else ()
    tag_results(result, args, verdict.type, origin, is_view, verdict.results, origins)


def judge(
    session: CheckSession, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Bound], list[Any], Outcome, str | None]:
    """The operands, their values, the outcome, and why the linear law is blocked (None: it is not)."""
    operands, values = op.bind(args, kwargs)
    blocked = None
    guard = op.rule.guard
    if guard is not None and any(isinstance(o.type, TensorType) and o.type.partial_axes for o in operands):
        blocked = guard(op.static(args, kwargs, operands, values))
    mesh, strict = current_entry(), session.strict
    if session.local:
        outcome = propagate(op.rule, operands, mesh, strict, blocked=blocked)
    else:
        scope, call = session.scope(mesh), op.labelled(args, kwargs, operands)
        outcome = propagate(op.rule, operands, mesh, strict, blocked=blocked, scope=scope, call=call)
        if op.templates and op.name in GIVES_SHAPE and not op.in_place:
            template = next((v for name, v in op.arguments(args, kwargs) if name in op.templates), None)
            if isinstance(template, torch.Tensor):
                outcome = shaped(op.name, outcome, type_of(template), tuple(template.shape), operands)
    if outcome.refusals:
        outcome = judged_elsewhere(op.rule, operands, values, strict, outcome)
    return operands, values, outcome, blocked


def run(
    session: CheckSession,
    op: Op,
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Sequence[Any],
    outcome: Outcome,
) -> Any:
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
    shown = [typed_shape(value) for value in values if isinstance(value, torch.Tensor)] if is_tracing() else []
    result = func(*args, **kwargs)
    if outcome.checked:
        session.checked += 1
    else:
        session.unchecked += 1
    if destination is not None:
        write(settled, origin)
    else:
        tag_results(result, args, outcome.type, origin, op.rule.view, outcome.results, origins)
        if any(tag.__class__ is RaggedTag for tag in tags):
            carry(op, args, kwargs, result)
    if is_tracing():
        log_result(op.name, shown, result)
    return result


def _remember(
    verdicts: dict[tuple[Any, ...], CachedVerdict],
    key: tuple[Any, ...],
    op: Op,
    operands: Sequence[Bound],
    values: Sequence[Any],
    outcome: Outcome,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Cache an outcome without refusals, unless it depends on more than the key can say."""
    if (
        outcome.elsewhere
        or is_tracing()
        or has_scalar(args, kwargs)
        or (outcome.blockable and op.rule.guard is not None)
    ):
        return
    # A constant that requires grad is no constant, and R and I mix only where no gradient flows.
    by_gradient = outcome.grad_matters or any(
        isinstance(operand.type, TensorType) and operand.type.ground.is_constant for operand in operands
    )
    if by_gradient and not has_gradient_bits(key):
        verdicts[key] = SPLIT
        key = (*key, *gradient_bits(args, kwargs))
    if len(verdicts) >= _LIMIT:
        verdicts.clear()
    tensors = [value for value in flat_arguments(args, kwargs) if value.__class__ in TENSORS]

    def counted(sources: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Operands as the tensors that they are among the arguments."""
        return tuple(
            None if at is None else next((n for n, tensor in enumerate(tensors) if tensor is values[at]), None)
            for at in sources
        )

    origins = tuple(map(counted, outcome.origins))
    verdicts[key] = CachedVerdict(outcome.type, counted(outcome.sources), outcome.checked, outcome.results, origins)


def _writes(kwargs: Mapping[str, Any]) -> bool:
    """True if a keyword names a destination; activations pass ``inplace=False`` on every call."""
    return kwargs.get("out") is not None or bool(kwargs.get("inplace"))


def _destination(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The tensor (or tensors) that the call writes into; None if it makes a new one."""
    if kwargs.get("out") is not None:
        return kwargs["out"]
    if op.in_place or kwargs.get("inplace") is True:
        return args[0] if args else kwargs.get("input", kwargs.get("self"))
    return None
