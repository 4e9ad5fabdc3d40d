"""The handler of a call: decided once per callable, by its name and its op rule."""

from __future__ import annotations

import inspect

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_location
from shardwise.interop import alias
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.calls.op_names import OpName, op_name
from shardwise.interop.running import recording
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import Tag, set_tag, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import HigherOrderOperator, operator_parameters
from shardwise.op_rules import custom_rules as custom
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind, OpRule
from shardwise.types.tensor_type import UNKNOWN_TYPE

from .call.arguments import Op
from .collectives.gathered_lists import OWN_DIMS, joining_pieces
from .collectives.partial_contractions import partial_contraction
from .collectives.planned import redistribution
from .collectives.raw import raw_handler
from .collectives.typed import collective
from .control_flow.operators import CONTROL_FLOW
from .gradients import forward_derivatives, gradient_hooks, loss
from .gradients import unjudged_calls as special
from .gradients.gradient_buckets import FLATTEN, IN_A_ROW, JOINING, UNFLATTEN, flatten, in_a_row, joining, unflatten
from .gradients.gradient_reads import SEARCHES, searching
from .observation.cut_data import CUTS, dealing_out
from .operators.factories import factory
from .operators.foreach import foreach
from .operators.gradient_copies import COPYING, MOVING, following, following_sum
from .operators.ignored_targets import IGNORING, ignoring
from .operators.ordinary import Handler, ordinary
from .operators.parts_written import assign_data, assigning_parts, resizing, storage_given
from .operators.random_ops import random_op
from .operators.running_statistics import with_statistics, writes_statistics
from .operators.sizes import SIZES
from .operators.value_reads import value_read
from .parts.own_parts import PARTING, copying, parting
from .parts.row_orders import keeping_order
from .parts.varying_lengths import decides_lengths, deciding
from .state.session import CheckSession
from .state.tensor_classes import is_dtensor_call

_PROPERTY_GETTERS = {"grad": special.gradient}
_BY_KIND = {
    Kind.CONSTANT: factory,
    Kind.ZERO: factory,
    Kind.EMPTY: factory,
    Kind.RANDOM: random_op,
    Kind.VALUE: value_read,
}


def handler_for(func: TorchFunction) -> Handler:
    """The handler for ``func``."""
    ours = getattr(func, "__shardwise_op__", None)
    if ours == "redistribute_types":
        return redistribution
    if ours is not None:
        if ours.startswith("partial_"):
            kind = ours.removeprefix("partial_")
            return keeping_order(kind, partial_contraction(kind))
        return following_sum(collective(ours)) if ours == "all_reduce" else collective(ours)
    if isinstance(func, HigherOrderOperator) and func.__name__ in CONTROL_FLOW:
        return CONTROL_FLOW[func.__name__]
    raw = raw_handler(func)
    if raw is not None:
        return raw
    if func is torch.Tensor.backward or func is torch.autograd.backward:
        return loss.backward
    if func is torch.autograd.grad:
        return loss.grad
    if func in (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook):
        return gradient_hooks.register
    name = op_name(func)
    if name.prop is not None:
        return _property(name)
    if name.shown in ("_make_dual", "_unpack_dual"):
        return forward_derivatives.make_dual if name.shown == "_make_dual" else forward_derivatives.unpack_dual
    if name.shown == "__deepcopy__":
        return special.copied
    if name.shown in (FLATTEN, UNFLATTEN):
        return flatten if name.shown == FLATTEN else unflatten
    rule = name.find(lookup)
    if rule is None:
        return no_rule(name)
    handler = handler_of_rule(name, rule)
    if (rule.op in COPYING or rule.op in MOVING) and not rule.view and not name.in_place:
        handler = following(handler, rule.op in MOVING)
    if rule.op in JOINING:
        return joining_pieces(joining(handler))
    if rule.op in IN_A_ROW:
        return in_a_row(handler)
    if rule.op in OWN_DIMS:
        return joining_pieces(handler)
    if rule.op in PARTING:
        return parting(rule.op, handler)
    if rule.op in ("contiguous", "clone"):
        return copying(handler)
    if rule.op in CUTS:
        return dealing_out(Op(name, rule), handler)
    if rule.op in SEARCHES:
        return searching(handler)
    if rule.op == "setitem":
        return assigning_parts(handler)
    if rule.op in ("resize_", "resize_as_"):
        return resizing(handler)
    if rule.op in ("untyped_storage", "storage", "_typed_storage"):
        return storage_given
    return _by_position(handler) if getattr(func, "__module__", "") == torch.nn.init.__name__ else handler


def _parameters(func: TorchFunction, count: int) -> str:
    """The parameters of an operator as a rule names them; placeholders where nothing tells."""
    try:
        return " ".join(operator_parameters(func) or inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return " ".join(f"x{at}" for at in range(count))


def _by_position(handler: Handler) -> Handler:
    """``torch.nn.init`` announces its tensor by name; as an in-place call's first argument it stands in front."""

    def handle(session: CheckSession, func: object, args: Arguments, kwargs: Keywords) -> object:
        if not args and "tensor" in kwargs:
            kwargs = dict(kwargs)
            args = (kwargs.pop("tensor"),)
        return handler(session, func, args, kwargs)

    return handle


def handler_of_rule(name: OpName, rule: OpRule) -> Handler:
    """The handler for a spelling of the operator that ``rule`` describes."""
    if rule.kind is Kind.METADATA:
        return SIZES.get(name.shown, special.pass_through)
    if rule.kind is Kind.OPTIMIZER:
        if rule.op == "_foreach_zero" and name.in_place:
            return special.zero_each
        return foreach(rule.op if not name.in_place else f"{rule.op}_") or special.optimizer
    if rule.kind is Kind.CONTROL:
        return no_rule(name)  # a function of that name that is not the operator
    op = Op(name, rule)
    if writes_statistics(op):
        return with_statistics(op)
    handler = _BY_KIND.get(rule.kind, ordinary)(op)
    if rule.kind is Kind.RANDOM:
        handler = keeping_order(op.name, handler)
    if rule.op in IGNORING:
        return ignoring(op, handler)
    return deciding(op, handler) if decides_lengths(op) else handler


def _property(name: OpName) -> Handler:
    if name.prop == "set":
        rule = lookup("copy_")
        if name.shown == "grad":
            return special.set_gradient
        if name.shown == "data" and rule is not None:
            return assign_data(ordinary(Op(OpName(("copy_",), in_place=True), rule)))
        return special.pass_through
    if name.shown == "shape":
        return SIZES["shape"]
    if name.shown in _PROPERTY_GETTERS:
        return _PROPERTY_GETTERS[name.shown]
    rule = lookup(name.shown)
    return special.pass_through if rule is None else handler_of_rule(OpName(name.candidates), rule)


def _as_function(name: OpName, func: TorchFunction, given: int) -> Handler:
    """How the reference reads an operator that it does not know: as any function of its operands that is not linear."""
    rule = OpRule(name.shown, _parameters(func, given), source="the program")
    return handler_of_rule(OpName(name.candidates), rule)


def no_rule(name: OpName) -> Handler:
    """The handler for an operator that the registry does not know: the program's own rule, and never a guess."""
    op = name.shown
    declared: list[Handler] = []

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        rule = None if declared else name.find(custom.lookup)
        if rule is not None:
            declared.append(handler_of_rule(name, rule))
        if declared:
            if session.collector is not None:
                session.trust(f"the rule of {op}", user_location())
            result = declared[0](session, func, args, kwargs)
            recording.declared(result, f"result of {op}")
            return result
        given = [(at, tensor) for at, value in enumerate((*args, *kwargs.values())) for tensor in tensors_in(value)]
        tensors = [tensor for _, tensor in given]
        if is_dtensor_call(args, kwargs) or not any(type_of(tensor).axes for tensor in tensors):
            return func(*args, **kwargs)
        as_there, partial = alias.is_installed(), any(type_of(tensor).partial_axes for tensor in tensors)
        if as_there and not partial:
            if session.collector is not None:
                session.trust(f"{op}, which has no rule, as a function that does not communicate", user_location())
            return _as_function(name, func, len(args))(session, func, args, kwargs)
        if session.collector is not None:
            session.collector.count_no_rule(op)
        if session.strict or (as_there and partial):
            located = LocatedCall(op, [(f"args[{at}]", tensor) for at, tensor in given])
            message = f"the registry has no op rule for {op}"
            help_lines = (
                f'shardwise.rules.register_rule("{op}", "{_parameters(func, len(args))}"), if it is a deterministic '
                "function that does not communicate",
                "wrap the call in a torch.autograd.Function with spmd_typecheck, or in local_map(out_types=...)",
            )
            report(session, located, Diagnosis("SW301", message, help=help_lines), operands=located.shown())
        return _run_untyped(func, args, kwargs)

    return handle


def run_unread(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords, op: str) -> object:
    """Run a call whose arguments its op rule cannot read: mostly torch cannot either, and says why."""
    result = _run_untyped(func, args, kwargs)
    if session.strict:
        named = [(f"args[{at}]", value) for at, value in enumerate(args) if isinstance(value, torch.Tensor)]
        located = LocatedCall(op, named)
        message = f"the op rule of {op} cannot read the arguments of this call, so its result has no type"
        report(session, located, Diagnosis("SW301", message), operands=located.shown())
    else:
        session.lose(f"the result of {op}, whose op rule cannot read these arguments", user_location())
    return result


def _run_untyped(func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    result = func(*args, **kwargs)
    for item in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(item, torch.Tensor):
            set_tag(item, Tag(UNKNOWN_TYPE))
    return result
