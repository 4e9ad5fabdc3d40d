"""How is an operator over lists of tensors checked? Element by element, as the operator that it repeats.

``torch._foreach_lerp_(ema, weights, 0.1)`` is ``lerp_`` of each pair. An element of which some tensor has no type is
passed over: optimizers keep state that nobody annotates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.gradient_origin import origin_after
from shardwise.interop.op_names import OpName
from shardwise.interop.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED

from ..call.arguments import Op
from ..diagnosis.reporter import refuse
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .ordinary import Handler, judge
from .write_destination import settle, write

_PREFIX = "_foreach_"


def foreach(name: str) -> Handler | None:
    """The handler for ``_foreach_<op>``; None if it repeats no operator that has a rule of its own."""
    if not name.startswith(_PREFIX):
        return None
    repeated = name.removeprefix(_PREFIX)
    rule = lookup(repeated) or lookup(repeated.rstrip("_"))
    if rule is None or rule.kind is not Kind.PURE:
        return None
    op = Op(OpName((repeated,), in_place=repeated.endswith("_")), rule)

    def handle(session: CheckSession, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        calls = [_element(args, kwargs, position) for position in range(len(args[0]))]
        outcomes = [_judge(session, op, *call) for call in calls]
        settled = []
        if op.in_place:
            for (first, *others), outcome in zip((call[0] for call in calls), outcomes, strict=True):
                settled += settle(session, op.name, first, outcome.type, [("other", value) for value in others[:1]])
        results = func(*args, **kwargs)
        site, text = user_site(), f"written by {name} here"
        write(settled, Origin(site, text))
        for call, result, outcome in zip(calls, results or (), outcomes, strict=False):
            _tag(result, outcome, origin_after(call[0][0], site, text))
        return results

    return handle


def _element(args: Sequence[Any], kwargs: Mapping[str, Any], position: int) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of the call number ``position``."""

    def pick(value: Any) -> Any:
        return value[position] if isinstance(value, (list, tuple)) else value

    return [pick(value) for value in args], {key: pick(value) for key, value in kwargs.items()}


def _judge(session: CheckSession, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outcome:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if any(type_of(tensor) is UNTYPED for tensor in tensors):
        session.unchecked += 1
        return Outcome(UNKNOWN_TYPE, checked=False)
    operands, values, outcome, blocked = judge(session, op, args, kwargs)
    if outcome.refusals:
        refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
    session.checked += outcome.checked
    return outcome


def _tag(result: Any, outcome: Outcome, origin: Origin) -> None:
    if isinstance(result, torch.Tensor) and tag_of(result) is None and outcome.type is not UNTYPED:
        set_tag(result, Tag(outcome.type, origin))
