"""How is a call of a user's ``autograd.Function`` checked? By the declaration that its author made.

In this order: a rule (``spmd_typecheck``), a typed forward (``typecheck_forward``, which ``register_decomposition``
writes), the promise that it is a plain local function. PyTorch's own functions need none (``builtin_functions``).
Anything else is opaque: an error in strict mode; in permissive mode a function that communicates is run on simulated
ranks (``probed_functions``), and where types are observed, one that names nothing that could communicate, or calls
nothing of it (``followed_calls``), is taken for a local one. What is not known then has an untyped result and is listed
as lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, attach
from shardwise.diagnostics.fix import Fix
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop.autograd.forward_args import bind_forward_args, named_tensors
from shardwise.interop.autograd.function_declarations import METHOD, has_typed_forward, is_local
from shardwise.interop.calls.located_call import LocatedCall
from shardwise.interop.fixes.declarations import as_its_rule_takes_it, registered_function
from shardwise.interop.running.recording import declared
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_compat import enters_dtensor, leaves_dtensor, tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import Outcome, propagate
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.schema import OpRule
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import UNKNOWN
from shardwise.types.spec import PartitionSpec, entry_axes
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, TensorType

from ..collectives.differentiable import check_function
from ..diagnosis.reporter import refuse
from ..operators.random_ops import drawn, draws_of
from ..parts.micro_batches import following_batches
from ..parts.passed_pieces import note_exchanged_by_hand
from ..parts.row_orders import following
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from ..typing_rules.operands import OperandRefused
from ..typing_rules.protocol import TypingRuleCall
from ..writes.write_destination import settle, write
from . import dtensor_bridge
from .builtin_functions import Treatment, pass_types_on, run_region, treatment_of
from .captured_tensors import captured_tensors
from .compared_derivative import compare_derivative
from .declared_forward import compare_forward, watched
from .followed_calls import runs_without_others
from .function_backward import remember, types_of
from .named_calls import communicates, may_communicate
from .probed_functions import probed, runs_locally

Run = Callable[[], Any]


def checked_apply(
    session: CheckSession, cls: type, args: Sequence[object], kwargs: Mapping[str, object], run: Run
) -> object:
    """Check ``cls.apply(*args, **kwargs)``, which ``run()`` executes, and type its results."""
    inputs = types_of(args)
    if session.derivatives and not kwargs:
        compare_derivative(session, cls, args)
    forward = functools.partial(_checked_forward, session, cls, args, kwargs, run)
    ordered = session.rows_moved and not session.local and not session.paused
    if ordered:
        in_order = functools.partial(following, session, cls.__name__, forward, args, kwargs)
        results = following_batches(session, cls.__name__, in_order, args, kwargs)
    else:
        results = forward()
    if not session.paused and (getattr(cls, METHOD, None) is not None or has_typed_forward(cls) or is_local(cls)):
        remember(cls, inputs, results)
    return results


def _checked_forward(
    session: CheckSession, cls: type, args: Sequence[object], kwargs: Mapping[str, object], run: Run
) -> object:
    run = functools.cache(run)  # a refusal after the kernel has run must not run it again
    tensors = [leaf for leaf in tree_leaves((tuple(args), dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        with paused(session):
            return run()
    try:
        if getattr(cls, METHOD, None) is not None:
            session.trust(f"the rule of {cls.__qualname__}", user_site())
            return _by_rule(session, cls, args, kwargs, run)
        if has_typed_forward(cls):
            session.trust(f"the typed forward of {cls.__qualname__}", user_site())
            with paused(session):
                return cls.typecheck_forward(*args, **kwargs)  # type: ignore[attr-defined]
        treatment = treatment_of(cls)
        if treatment is Treatment.BRIDGE:
            return _cross(session, cls, args, run)
        if is_dtensor_call(args, kwargs):
            with paused(session):
                return run()
        if is_local(cls):
            session.trust(f"{cls.__qualname__} is local", user_site())
            treatment = Treatment.LOCAL
        if treatment is Treatment.REGION:
            return run_region(session, cls, args)
        if treatment is Treatment.IDENTITY:
            with paused(session):
                return pass_types_on(tensors, run())
        if treatment is Treatment.SEEN:
            check_function(session, cls, args)
            return run()
        if treatment is Treatment.OWN_POSITIONS and not session.local and any(type_of(x).spec for x in tensors):
            session.lose("the type of elements at positions that each rank counts for itself", user_location())
            return _run_as(session, cls.__name__, UNKNOWN_TYPE, run, tensors)
        if treatment in (Treatment.LOCAL, Treatment.OWN_POSITIONS):
            return _as_local(session, _local_call(session, cls, args, kwargs), run)
        if treatment is Treatment.OWN_ROWS:
            spec = None if session.local else _spec_of_rows(args)
            return _as_local(session, _local_call(session, cls, args, kwargs, spec), run, spec)
        if session.strict:
            raise _unregistered(cls)
        if not kwargs and communicates(cls, args):
            note_exchanged_by_hand(session, tensors)
            if runs_locally(session, cls, args):
                return _as_local(session, _local_call(session, cls, args, kwargs), run)
            return _noting_loss(session, cls, tensors, probed(session, cls, args, run))
        if session.observe:
            call = _local_call(session, cls, args, kwargs)
            why = _why_local(session, cls, args, kwargs) if call.tells else ""
            if why:
                session.trust(f"{cls.__qualname__} is local, since {why}", user_site())
                return _as_local(session, call, run)
    except SpmdTypeError as error:
        if error.attached is not None:
            raise  # an operator inside was refused and has said so
        _tell(error, cls, args, kwargs)
        session.report(error)
        return _run_as(session, cls.__name__, UNKNOWN_TYPE, run, tensors)
    return _noting_loss(session, cls, tensors, _run_as(session, cls.__name__, UNTYPED, run, tensors))


def _why_local(session: CheckSession, cls: type, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """What says that a function which nobody declares does not communicate; empty if nothing does."""
    if not may_communicate(cls, args):
        return "its code names nothing that communicates"
    followed = not (kwargs or communicates(cls, args)) and runs_without_others(session, cls, args)
    return "it has called nothing that may communicate" if followed else ""


def _noting_loss(session: CheckSession, cls: type, operands: Sequence[torch.Tensor], results: object) -> object:
    """``results``; listed as lost where operands had types, all of them known, and no result has one (D13)."""
    types = [type_of(x) for x in operands]
    if any(type.get(axis) is UNKNOWN for type in types for axis in type.axes):
        return results  # that has been said
    made = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if made and any(type.axes for type in types) and not any(tag_of(leaf) is not None for leaf in made):
        what = f"the type of what {cls.__qualname__} makes, an autograd function that nobody declares"
        session.lose(what, user_site())
        if session.untyped is not None:
            session.untyped.lost(cls.__qualname__, made)
    return results


def _cross(session: CheckSession, cls: type, args: Sequence[object], run: Run) -> object:
    """Into DTensor or out of it."""
    if enters_dtensor(cls):
        dtensor_bridge.enter(session, args)
    with paused(session):
        result = run()
    if leaves_dtensor(cls):
        dtensor_bridge.leave(session, args, result)
    return result


def _tell(error: SpmdTypeError, cls: type, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Give ``error`` its finding: at the call of apply, with the tensors that forward takes."""
    try:
        named = named_tensors(bind_forward_args(cls, args, kwargs))
    except SpmdTypeError:
        named = []
    located = LocatedCall(cls.__name__, named)
    operands = [located.operand(position) for position in range(len(named))]
    fixes: tuple[Fix, ...] = ()
    if isinstance(error, OperandRefused):
        position = next((at for at, (label, _) in enumerate(named) if label == error.name), None)
        if position is not None:
            fixes = as_its_rule_takes_it(located, position, error.along, error.found, error.wanted)
    elif error.code == "SW302":
        fixes = registered_function(located.location, cls, error.help[0])
    attach(error, op=cls.__name__, location=located.location, operands=operands, fixes=fixes)


def _by_rule(
    session: CheckSession, cls: type, args: Sequence[object], kwargs: Mapping[str, object], run: Run
) -> object:
    if kwargs:
        raise SpmdArgumentError(
            f"{cls.__qualname__}.apply was called with keyword arguments {', '.join(kwargs)}; with a rule "
            f"({METHOD}) all arguments are positional",
            code="SW304",
        )
    call = TypingRuleCall(cls, args, local=session.local, strict=session.strict)
    call.before()
    before = [type_of(value) for value in args if isinstance(value, torch.Tensor) and value.is_floating_point()]
    with paused(session), watched(session, cls, args, before) as seen:
        state = torch.get_rng_state() if seen is not None else None
        results = run()
        draws = state is not None and not torch.equal(state, torch.get_rng_state())
    call.after(results)
    if seen is not None:
        compare_forward(session, cls, args, before, results, call.run.steps, seen, draws=draws)
    if draws:
        _refuse_draws(session, cls, args, results)
    for leaf in tree_leaves(results):
        declared(leaf, f"result of {cls.__qualname__}")
    session.checked += 1
    return results


def _refuse_draws(session: CheckSession, cls: type, args: Sequence[object], results: object) -> None:
    """SW121 where a rule says that results are equal which random numbers have gone into."""
    named = named_tensors(bind_forward_args(cls, args))
    operands = [Bound(name, type_of(tensor), label=name, shape=tuple(tensor.shape)) for name, tensor in named]
    for leaf in tree_leaves(results):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            outcome = drawn(draws_of(session, {}), Outcome(type_of(leaf)), operands)
            if outcome.refusals:
                refuse(session, cls.__name__, OpRule(cls.__name__), operands, [x for _, x in named], outcome)
                set_tag(leaf, Tag(outcome.type))


def _spec_of_rows(args: Sequence[object]) -> PartitionSpec | None:
    """The spec of the first of ``args``, where no axis outside of the group, the last of them, cuts anything."""
    type, group = type_of(args[0]), args[-1]
    shards = {axis for entry in type.spec or () for axis in entry_axes(entry)}
    return type.spec if shards <= set(parts_of(MeshAxis.of(group), type)) else None


@dataclass(frozen=True)
class _LocalCall:
    """A function as an operator that is not linear in anything, over all tensors among the arguments."""

    cls: type
    rule: OpRule
    operands: list[Bound]
    values: list[torch.Tensor]
    outcome: Outcome

    @property
    def tells(self) -> bool:
        """Where nobody declares the function, the call has types and gives one: else nobody knows."""
        types = [x.type for x in self.operands if isinstance(x.type, TensorType)]
        return bool(self.outcome.checked) and not self.outcome.refusals and not any(one.partial_axes for one in types)


def _local_call(
    session: CheckSession,
    cls: type,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    spec: PartitionSpec | None = None,
) -> _LocalCall:
    """The call, judged. ``spec``: of its result."""
    rule = OpRule(cls.__name__)
    named = [*named_tensors(bind_forward_args(cls, args, kwargs)), *captured_tensors(cls)]
    operands = [
        Bound(
            name,
            type_of(tensor),
            grad=tensor.requires_grad and torch.is_grad_enabled(),
            label=name,
            shape=tuple(tensor.shape),
        )
        for name, tensor in named
    ]
    mesh = current_entry()
    scope = None if session.local or spec is not None else session.scope(mesh)
    outcome = propagate(rule, operands, mesh, session.strict, scope=scope)
    return _LocalCall(cls, rule, operands, [tensor for _, tensor in named], outcome)


def _as_local(session: CheckSession, call: _LocalCall, run: Run, spec: PartitionSpec | None = None) -> object:
    """Run the call and give its results their type. ``spec``: of the result."""
    outcome = call.outcome
    key = ("draws", call.cls, tuple(operand.type for operand in call.operands))
    if key not in session.probed and not outcome.refusals:
        session.probed[key] = None
        if _draws_numbers(session, run):
            outcome = drawn(draws_of(session, {}), outcome, call.operands)
    if outcome.refusals:
        refuse(session, call.cls.__name__, call.rule, call.operands, call.values, outcome)
    session.checked += outcome.checked
    session.unchecked += not outcome.checked
    return _run_as(session, call.cls.__name__, outcome.type.with_spec(spec), run, call.values)


def _draws_numbers(session: CheckSession, run: Run) -> bool:
    """True if ``run()``, which is then done, takes random numbers from the default generator."""
    with paused(session):
        before = torch.get_rng_state()
        run()
        return not torch.equal(before, torch.get_rng_state())


def _run_as(session: CheckSession, name: str, type: TensorType, run: Run, tensors: Sequence[torch.Tensor]) -> object:
    """Run unchecked and give every tensor in the result ``type``; an operand handed back was written into."""
    with paused(session):
        results = run()
    if type is not UNTYPED:
        origin = Origin(user_site(), f"made by {name} here")
        for leaf in tree_leaves(results):
            if not isinstance(leaf, torch.Tensor):
                continue
            if any(leaf is tensor for tensor in tensors):
                write(settle(session, name, leaf, type, ()), origin)
            else:
                set_tag(leaf, Tag(type, origin))
    return results


def _unregistered(cls: type) -> SpmdTypeError:
    name = cls.__qualname__
    return SpmdTypeError(
        f"{name} is not registered for SPMD type checking: nothing is known about the types of its results",
        code="SW302",
        help=(
            f"register_local_autograd_function({name}) if it neither communicates nor looks at ranks",
            f"def {METHOD}(*, ...) as a static method of {name}, with functions of shardwise.rules, if it does",
            "with no_typecheck(): ... or @no_typecheck(out_types=...) around this one call",
        ),
    )
