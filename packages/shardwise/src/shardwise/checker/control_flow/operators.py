"""How are ``cond``, ``while_loop``, ``scan`` and ``map`` checked? Every function once, on tensors without data.

What the functions give is joined into one type by the rules of ``op_rules/operators/control_flow.py``; it holds
whichever branch is taken and however often a loop runs. Then the program's own values run through plain Python loops,
unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, TorchFunction
from shardwise.interop.torch_compat import is_batched, is_fake, tree_leaves, tree_map
from shardwise.op_rules.registry import lookup
from shardwise.types.placement import R
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED

from ..call.arguments import Op
from ..collectives.divergence import diverging, pending_axes
from ..diagnosis.reporter import refuse
from ..operators.judging import judge
from ..operators.ordinary import Handler
from ..operators.value_reads import report_read
from ..propagation.results import origin_of_result
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .disagreements import BRANCHES, CARRIES, disagree
from .dry_run import Laboratory, NotDry
from .interpreter import RUNS, Interpreting, without_notes
from .slices import Slices

Function = Callable[..., Any]
_ROUNDS = 8
"""A type only moves from a constant over replicate to varying, so a loop settles much earlier."""


def can_handle(arguments: Sequence[object]) -> bool:
    """False for a call that torch must run in its own way: on DTensors, and where vmap has one decision per element.

    ``arguments``  of ``cond``, which decides by the first of them; of ``while_loop``, which decides by any; of others.
    """
    first, *rest = arguments
    decides = [first] if isinstance(first, torch.Tensor) else tree_leaves(rest) if _decides_by_any(arguments) else []
    return not any(map(is_batched, decides)) and not is_dtensor_call(tree_leaves(list(arguments)), {})


def _decides_by_any(arguments: Sequence[object]) -> bool:
    """True for ``while_loop``, alone in taking two functions first."""
    return len(arguments) > 1 and callable(arguments[0]) and callable(arguments[1])


def _op(name: str) -> Op:
    rule = lookup(name)
    assert rule is not None, "every operator here has a rule"
    return Op(OpName((name,)), rule)


class HigherOrderCall:
    """One call of a higher-order operator: what is common to all of them."""

    def __init__(self, session: CheckSession, name: str, operands: object) -> None:
        self.session = session
        self.op = _op(name)
        self.lab = Laboratory(session, operands)
        self.location = user_location()

    def join(
        self, functions: tuple[str, str], results: tuple[object, object], what: str, sources: Sequence[object]
    ) -> Tag:
        """The one type of two results that stand for each other; where they have none, that is reported.

        ``functions``  the rule's parameters that gave them. ``what``: the result as messages name it.
        ``sources``    the functions themselves, for their places.
        """
        given = dict(zip(functions, results, strict=True))
        _, values, outcome, _ = judge(self.session, self.op, (), given)
        if outcome.refusals:
            disagree(self.session, self.op, functions, results, outcome, what, sources)
        return Tag(outcome.type, origin_of_result(outcome.sources, [tag_of(value) for value in values]))

    def decided(self, decides: object, functions: tuple[str, str], result: torch.Tensor) -> Tag:
        """The type of a result of which ``decides`` says whether it is this one, or another of the same type."""
        tag = tag_of(result) or Tag(UNTYPED)
        known = tag.type.axes or tag.type.ground.is_constant
        if not known or not isinstance(decides, torch.Tensor) or not type_of(decides).axes or pending_axes(decides):
            return tag  # a predicate without a type is believed, as it is in an if
        with paused(self.session), self.lab.mode:
            scalar = torch.empty((), dtype=decides.dtype, device=decides.device)
        believed = dict.fromkeys((axis for axis in tag.type.axes if axis not in type_of(decides)), R)
        type = type_of(decides)
        set_tag(scalar, Tag(type.with_placements(believed) if believed else type))
        operands, values, outcome, blocked = judge(
            self.session, self.op, (), {self.op.params[0]: scalar, **dict.fromkeys(functions, result)}
        )
        if outcome.refusals:
            shown = [decides if value is scalar else value for value in values]
            refuse(self.session, self.op.name, self.op.rule, operands, shown, outcome, blocked=blocked)
        return Tag(outcome.type, origin_of_result(outcome.sources, [tag_of(value) for value in values]))

    def reads(self, decides: Any) -> None:
        """Report what decides if it is a pending sum, which has no value yet."""
        for axis in pending_axes(decides):
            report_read(self.session, self.op.name, "SW115", decides, axis)

    def finish(self, dry: object, run: Callable[[], object]) -> object:
        """What ``run()`` computes, with the types (and the nesting) of ``dry``."""
        self.session.checked += 1
        if self.lab.is_dry:
            return dry
        with paused(self.session), Interpreting():
            values = iter([_own(leaf) for leaf in tree_leaves(run())])
        return tree_map(lambda leaf: _tagged(next(values), leaf), dry)

    def by_value(self, run: Callable[[], object]) -> object:
        """The way out for functions that cannot run dry: they are checked as they run, as far as they do."""
        if self.lab.is_dry:
            raise NotDry
        self.session.trust(f"what {self.op.name} did not run here", self.location)
        with self.session.again():
            return run()


def _own(leaf: object) -> object:
    """A result that was there before the call is copied: torch gives no operand back."""
    return leaf.clone() if isinstance(leaf, torch.Tensor) and tag_of(leaf) is not None else leaf


def _tagged(value: object, dry: object) -> object:
    tag = tag_of(dry)
    if isinstance(value, torch.Tensor) and tag is not None:
        set_tag(value, Tag(tag.current(), tag.origin))
    return value


def _retagged(tensor: object, tag: Tag) -> object:
    if isinstance(tensor, torch.Tensor):
        set_tag(tensor, tag)
    return tensor


def _same_form(name: str, one: object, other: object) -> Iterator[tuple[Any, Any]]:
    """Pairs of leaves. Errors: RuntimeError where torch would refuse, too: other structures, shapes or dtypes."""
    first, second = tree_leaves(one), tree_leaves(other)
    forms = [
        [(tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else None for x in each] for each in (first, second)
    ]
    if forms[0] != forms[1]:
        raise RuntimeError(f"{name}: results of different form, {forms[0]} and {forms[1]}")
    return zip(first, second, strict=True)


def _cond(
    session: CheckSession, pred: object, true_fn: Function, false_fn: Function, operands: Sequence[object]
) -> object:
    call = HigherOrderCall(session, "cond", (pred, operands))
    call.reads(pred)
    try:
        with diverging(session, "cond", pred, call.location):
            results = [call.lab.run(fn, call.lab.stand_ins(tuple(operands))) for fn in (true_fn, false_fn)]
    except NotDry:
        return call.by_value(lambda: RUNS["cond"](pred, true_fn, false_fn, operands))
    joined = []
    for at, pair in enumerate(_same_form("cond", *results)):
        what = "" if len(tree_leaves(results[0])) == 1 else f"result {at}"
        if isinstance(pair[0], torch.Tensor):
            tag = call.join(BRANCHES, pair, what, (true_fn, false_fn))
            result = call.lab.stand_in(pair[0], tag, grad=pair[1].requires_grad)
            joined.append(_retagged(result, call.decided(pred, BRANCHES, result)))
        else:
            joined.append(pair[0])
    leaves = iter(joined)
    dry = tree_map(lambda _: next(leaves), results[0])
    if is_fake(pred):
        return dry
    return call.finish(dry, lambda: RUNS["cond"](pred, true_fn, false_fn, operands))


def _while_loop(
    session: CheckSession,
    cond_fn: Function,
    body_fn: Function,
    carried_inputs: Sequence[object],
    additional_inputs: Sequence[object] = (),
) -> object:
    call = HigherOrderCall(session, "while_loop", (carried_inputs, additional_inputs))
    additional = call.lab.stand_ins(tuple(additional_inputs))
    decides: Any = None

    def body(*carried: object) -> object:
        nonlocal decides
        decides = call.lab.run(cond_fn, (*carried, *additional))
        call.reads(decides)
        with diverging(session, "while_loop", decides, call.location):
            return call.lab.run(body_fn, (*carried, *additional))

    def compute() -> object:
        return RUNS["while_loop"](cond_fn, body_fn, carried_inputs, additional_inputs)

    try:
        carried, out = _settled(call, body, carried_inputs, ("carried_inputs", "body_fn"), body_fn, lambda out: out)
    except NotDry:
        return call.by_value(compute)
    final = iter([_retagged(x, call.decided(decides, ("carried_inputs", "body_fn"), x)) for x in carried])
    return call.finish(tree_map(lambda _: next(final), out), compute)


def _settled(
    call: HigherOrderCall,
    body: Function,
    initial: Sequence[object],
    functions: tuple[str, str],
    source: Function,
    carry_of: Callable[[Any], object],
) -> tuple[list[Any], Any]:
    """The carried values with the types that the body keeps, and what it gives for them.

    ``functions``  the rule's parameters for the first value and for the body's. Errors: NotDry.
    """
    carried = [call.lab.stand_in(value) for value in initial]
    out = None
    for _ in range(_ROUNDS):
        out = body(*carried)
        after = []
        for at, pair in enumerate(_same_form(call.op.name, carried, tree_leaves(carry_of(out)))):
            if isinstance(pair[0], torch.Tensor):
                tag = call.join(functions, pair, f"{functions[0]}[{at}]", (None, source))
                after.append(call.lab.stand_in(pair[0], tag, grad=pair[1].requires_grad))
            else:
                after.append(pair[0])
        settled = all(type_of(a) is type_of(b) for a, b in zip(carried, after, strict=True))
        carried = after
        if settled or any(type_of(value) is UNKNOWN_TYPE or _is_unknown(value) for value in after):
            break
    return carried, out


def _is_unknown(value: object) -> bool:
    type = type_of(value)
    return len(type.local) < len(type.axes)


def _scan(
    session: CheckSession,
    combine_fn: Function,
    init: Sequence[object],
    xs: Sequence[torch.Tensor],
    additional_inputs: Sequence[object] = (),
) -> object:
    call = HigherOrderCall(session, "scan", (init, xs, additional_inputs))
    slices = Slices(session, "scan", xs)
    additional = call.lab.stand_ins(tuple(additional_inputs))
    items = slices.in_order(call.lab)

    def compute() -> object:
        return RUNS["scan"](combine_fn, init, xs, additional_inputs)

    try:
        carried, out = _settled(
            call,
            lambda *carried: call.lab.run(combine_fn, (*carried, *items, *additional)),
            init, CARRIES, combine_fn, lambda out: out[0],
        )  # fmt: skip
    except NotDry:
        return call.by_value(compute)
    leaves = iter(carried)
    carry = tree_map(lambda _: next(leaves), out[0])
    return call.finish((carry, slices.stacked(call.lab, out[1])), compute)


def _associative_scan(
    session: CheckSession, combine_fn: Function, xs: Sequence[torch.Tensor], additional_inputs: Sequence[object] = ()
) -> object:
    call = HigherOrderCall(session, "associative_scan", (xs, additional_inputs))
    slices = Slices(session, "associative_scan", xs)
    additional = call.lab.stand_ins(tuple(additional_inputs))
    items = slices.in_order(call.lab)

    def compute() -> object:
        return RUNS["associative_scan"](combine_fn, xs, additional_inputs)

    try:
        carried, _ = _settled(
            call,
            lambda *carried: call.lab.run(combine_fn, (*carried, *items, *additional)),
            items, ("xs", "combine_fn"), combine_fn, lambda out: out,
        )  # fmt: skip
    except NotDry:
        return call.by_value(compute)
    return call.finish(slices.stacked(call.lab, carried), compute)


def _map(session: CheckSession, f: Function, xs: Sequence[torch.Tensor], pos_args: Arguments = ()) -> object:
    call = HigherOrderCall(session, "map", (xs, pos_args))
    slices = Slices(session, "map", xs)

    def compute() -> object:
        return RUNS["map_impl"](f, xs, pos_args)

    try:
        with slices.apart(pos_args):
            out = call.lab.run(f, (*slices.items(call.lab), *call.lab.stand_ins(tuple(pos_args))))
    except NotDry:
        return call.by_value(compute)
    return call.finish(slices.stacked(call.lab, out), compute)


def _handler(check: Function) -> Handler:
    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Mapping[str, object]) -> object:
        if not can_handle((*args, *kwargs.values())):
            return func(*args, **kwargs)
        return check(session, *args, **without_notes(kwargs))

    return handle


CONTROL_FLOW: Mapping[str, Handler] = {
    "cond": _handler(_cond),
    "while_loop": _handler(_while_loop),
    "scan": _handler(_scan),
    "associative_scan": _handler(_associative_scan),
    "map_impl": _handler(_map),
}
"""By the name of the operator in ``torch.ops.higher_order``."""
