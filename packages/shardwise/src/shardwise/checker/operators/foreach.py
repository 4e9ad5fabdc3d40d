"""The handler of an operator over lists of tensors: element by element it is the operator that it repeats.

``torch._foreach_lerp_(ema, weights, 0.1)`` is ``lerp_`` of each pair. An element of which some tensor has no type is
passed over: optimizers keep state that nobody annotates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import gradient_origin, origin_after
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.calls.tracing import anywhere
from shardwise.interop.tensors.tagging import Origin, Tag, is_pieced, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, TensorType

from ..call.arguments import Op
from ..call.cache_key import gradient_bits, key_of
from ..diagnosis.reporter import refuse
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from ..writes.dtensor_scales import elements_rescaled
from ..writes.gradient_writes import is_part
from ..writes.shared_memory import spread_parts
from ..writes.write_destination import settle, write
from . import scale_lost
from .judging import judge
from .known_calls import LIMIT, KnownWrites, leaves, may_be_known
from .ordinary import Handler, ordinary

Element = tuple[list[Any], dict[str, Any]]
"""The arguments of a call for one element."""
_PREFIX = "_foreach_"
_REPEATABLE = frozenset({"add", "sub", "mul", "div", "copy", "neg", "norm"})
"""Operators with the arguments of their ``_foreach_`` form."""


def foreach(name: str) -> Handler | None:
    """The handler for ``_foreach_<op>``; None if it repeats no operator that has a rule of its own."""
    if not name.startswith(_PREFIX):
        return None
    repeated = name.removeprefix(_PREFIX)
    rule = lookup(repeated) or lookup(repeated.rstrip("_"))
    if rule is None or rule.kind is not Kind.PURE:
        return None
    return _Repeated(Op(OpName((repeated,), in_place=repeated.endswith("_")), rule)).handle


class _Repeated:
    """The calls of one ``_foreach_`` operator: ``op`` for every element."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self._writes = KnownWrites(op)
        self._writes.fills = False
        self._verdicts: dict[tuple[object, ...], list[Outcome]] = {}
        self._plain = getattr(torch.Tensor, op.name, None)
        alone = self._plain is not None and op.name.rstrip("_") in _REPEATABLE
        self._one_by_one = ordinary(op) if alone else None
        self._text = f"{'written' if op.in_place else 'made'} by {op.name} here"

    def handle(self, session: CheckSession, func: TorchFunction, args: Sequence[Any], kwargs: Keywords) -> object:
        """Run a call; the first of its kind is judged."""
        if not args:  # what is written into goes by position in all that is asked of a call
            first = next(iter(kwargs))
            args, kwargs = (kwargs[first],), {name: value for name, value in kwargs.items() if name != first}
        if self.op.in_place:
            key = self._writes.key(session, args, kwargs)
            known, result = self._writes.run(session, func, args, kwargs, key)
            return result if known else self._first(session, func, args, kwargs, key)
        items = key_of(session, args, kwargs, [])
        key = None if items is None else (*items, *gradient_bits(args, kwargs))
        outcomes = None if key is None or anywhere.blocks else self._verdicts.get(key)
        if outcomes is None:
            return self._first(session, func, args, kwargs, key)
        results = func(*args, **kwargs)
        _count(session, outcomes)
        _hand_on(results, outcomes, _firsts(args, kwargs), self._text)
        return results

    def _first(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Sequence[Any],
        kwargs: Keywords,
        key: tuple[object, ...] | None,
    ) -> object:
        op = self.op
        calls = [_element(args, kwargs, position) for position in range(len(_firsts(args, kwargs)))]
        if is_dtensor_call(args, kwargs):
            result = func(*args, **kwargs)
            if op.in_place:
                elements_rescaled(op, calls)
            return result
        if self._one_by_one is not None and any(_in_pieces(op, *call) for call in calls):
            made = [self._one_by_one(session, self._plain, *call) for call in calls]
            return args[0] if op.in_place else tuple(made)
        judged = [_judge(session, op, *call) for call in calls]
        outcomes = [outcome for outcome, _ in judged]
        # Both are asked before the call changes its operands.
        known = key is not None and self._may_be_known(calls, outcomes)
        settled = self._settled(session, calls, outcomes) if op.in_place else []
        results: Any = func(*args, **kwargs)
        _count(session, outcomes)
        if known and key is not None:
            self._remember(key, outcomes)
        origin = Origin(user_site(), self._text)
        write(settled, origin)
        spread_parts(session, settled, origin)
        firsts = _firsts(args, kwargs)
        _hand_on(results, outcomes, firsts, self._text)
        for result, (_, lost) in zip(results or firsts, judged, strict=True):
            if lost:
                scale_lost.note(session, result, lost)
        return results

    def _may_be_known(self, calls: Sequence[Element], outcomes: Sequence[Outcome]) -> bool:
        op, both = self.op, list(zip(calls, outcomes, strict=True))
        known = all(may_be_known(op, outcome, *call) for call, outcome in both)
        if not op.in_place:
            return known
        # What has no tag gets one.
        return known and all(
            tag_of(args[0]) is not None and not outcome.results and leaves(args[0], outcome.type, self.op.name)
            for (args, _), outcome in both
        )

    def _settled(
        self, session: CheckSession, calls: Sequence[Element], outcomes: Sequence[Outcome]
    ) -> list[tuple[torch.Tensor, TensorType]]:
        """What each call writes into, with the type that it has afterwards."""
        settled = []
        for ((first, *others), _), outcome in zip(calls, outcomes, strict=True):
            settled += settle(session, self.op.name, first, outcome.type, [("other", value) for value in others[:1]])
        return settled

    def _remember(self, key: tuple[object, ...], outcomes: list[Outcome]) -> None:
        if self.op.in_place:
            checked = sum(outcome.checked for outcome in outcomes)
            self._writes.remember(key, checked, len(outcomes) - checked)
            return
        if len(self._verdicts) >= LIMIT:
            self._verdicts.clear()
        self._verdicts[key] = outcomes


def _in_pieces(op: Op, args: Arguments, kwargs: Keywords) -> bool:
    """True if some tensor of the call shares its memory with others of other types, or is a piece of a bucket."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if any(is_pieced(tensor) for tensor in tensors):
        return True
    gradients = any(gradient_origin(tag_of(tensor)) is not None for tensor in tensors)
    return op.in_place and gradients and is_part(tensors[0])


def _count(session: CheckSession, outcomes: Sequence[Outcome]) -> None:
    checked = sum(outcome.checked for outcome in outcomes)
    session.checked += checked
    session.unchecked += len(outcomes) - checked


def _hand_on(results: Any, outcomes: Sequence[Outcome], firsts: Sequence[object], text: str) -> None:
    """Give each result the type of its element; its history begins here, or with the gradient that it is made of."""
    if not results:
        return
    site = user_site()
    for first, result, outcome in zip(firsts, results, outcomes, strict=False):
        _tag(result, outcome, origin_after(first, site, text))


def _firsts(args: Arguments, kwargs: Keywords) -> Sequence[object]:
    """The first list of the call, which has an element for each call; in ``_foreach_pow(2.0, xs)`` it stands last."""
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, (list, tuple)))


def _element(args: Arguments, kwargs: Keywords, position: int) -> Element:
    """The arguments of the call number ``position``."""

    def pick(value: object) -> object:
        return value[position] if isinstance(value, (list, tuple)) else value

    return [pick(value) for value in args], {key: pick(value) for key, value in kwargs.items()}


def _judge(session: CheckSession, op: Op, args: Arguments, kwargs: Keywords) -> tuple[Outcome, tuple[MeshAxis, ...]]:
    """The outcome of one call, and the axes along which it loses the scale of a gradient."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if any(type_of(tensor) is UNTYPED for tensor in tensors):
        return Outcome(UNKNOWN_TYPE, checked=False), ()
    operands, values, outcome, blocked = judge(session, op, args, kwargs)
    if outcome.refusals:
        refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
    return outcome, scale_lost.axes_lost(operands, values, outcome)


def _tag(result: object, outcome: Outcome, origin: Origin) -> None:
    if isinstance(result, torch.Tensor) and tag_of(result) is None and outcome.type is not UNTYPED:
        set_tag(result, Tag(outcome.type, origin))
