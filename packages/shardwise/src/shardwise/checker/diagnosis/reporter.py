"""The reporter of refused calls: one table from code to what is said, and the finding that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.finding import Diagnosis, Unsummed
from shardwise.diagnostics.fix import Fix
from shardwise.interop.autograd.gradient_origin import arrival, gradient_origin
from shardwise.interop.autograd.parameter_names import names_of
from shardwise.interop.calls.located_call import LocatedCall, axis_text, describe_value, report
from shardwise.interop.fixes.buckets import buckets_met
from shardwise.interop.fixes.expressions import call_at, callee, is_path
from shardwise.interop.fixes.gradient_sums import averaged_before, pending_part, sum_of_operand, sums_by_hand
from shardwise.interop.fixes.pending_sums import summed_where_made
from shardwise.interop.running.session import Session
from shardwise.interop.running.silence import codes_of, is_running
from shardwise.interop.tensors.tagging import is_pieced, sizes_of, tag_of, type_of
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.schema import OpRule
from shardwise.types.tensor_type import Exponent, TensorType

from . import operand_refusals as operand
from . import sharding_refusals as sharding
from .refused_call import RefusedCall

TABLE: dict[str, Callable[[RefusedCall], Diagnosis]] = {
    "SW101": operand.invariant_mixed,
    "SW102": operand.missing_annotation,
    "SW103": operand.missing_axis,
    "SW110": operand.partial_meets_varying,
    "SW111": operand.product_of_partials,
    "SW112": operand.partial_in_nonlinear,
    "SW113": operand.term_added_per_rank,
    "SW114": operand.partial_in_argument,
    "SW121": operand.unsynchronised_random,
    "SW133": operand.incompatible_meshes,
    "SW150": operand.scales_differ,
    "SW151": operand.scale_in_nonlinear,
    "SW401": sharding.shardings_disagree,
    "SW402": sharding.whole_meets_shard,
    "SW403": sharding.mean_over_shard,
    "SW404": sharding.extremum_over_shard,
    "SW405": sharding.dim_needed_whole,
    "SW406": sharding.position_over_shard,
    "SW407": sharding.unasked_partial,
    "SW408": sharding.varying_without_spec,
    "SW409": sharding.axis_order_conflict,
    "SW411": sharding.no_global_rule,
    "SW417": sharding.uneven_shards,
    "SW418": sharding.whole_size_for_shard,
    "SW620": operand.repeated_random,
}
"""What is said of a refused call: message, facts and help of each code that propagation gives."""

_COMPARING = codes_of(torch.testing.assert_close)


def refuse(
    session: Session,
    op: str,
    rule: OpRule,
    operands: Sequence[Bound],
    values: Sequence[object],
    outcome: Outcome,
    *,
    blocked: str | None = None,
    facts: Sequence[str] = (),
) -> None:
    """Report every refusal of ``outcome``; returns only if the session collects or the call only compares values.

    ``facts``  what else is to be said of each.
    """
    if is_running(_COMPARING):  # comparing local tensors is how a type error is hunted down
        return
    located = LocatedCall(op, [(operand.label, value) for operand, value in zip(operands, values, strict=True)])
    caller = _name_inside_torch(located)
    for at in outcome.refusals:
        refused = RefusedCall(op, rule, operands, located, at, blocked, outcome.call)
        shown = [located.operand(one, at.axis) for one in dict.fromkeys([*refused.culprits, *refused.others])]
        context = _context(op, operands, values)
        said = diagnosis(refused)
        said = replace(said, facts=(*said.facts, *facts), message=f"{caller}{said.message}")
        report(session, located, said, at.axis, operands=shown, context=context)


def _name_inside_torch(located: LocatedCall) -> str:
    """Gradients that torch itself is reading, in a function that the program calls, go by ``p.grad``; several of them
    by the names of their parameters.

    Gives that function as messages begin with it: ``clip_grad_norm_: ``; else nothing.
    """
    call = call_at(located.location)
    if located.location is None or call is None or any(place is not None for place in located.places):
        return ""
    reader = callee(located.location, call)
    origins = {at: origin for at, value in enumerate(located.values) if (origin := gradient_origin(tag_of(value)))}
    if not origins or reader == located.op:
        return ""
    parameters = {at: origin.parameter for at, origin in origins.items() if origin.parameter is not None}
    named = dict(zip(parameters, names_of(list(parameters.values())), strict=True)) if len(origins) > 1 else {}
    for at in origins:
        located.names[at] = (f"{named[at]}.grad" if " " not in named.get(at, " ") else "p.grad", None)
    return f"{reader}: "


def diagnosis(refused: RefusedCall) -> Diagnosis:
    """What is said of a refused call, with the repairs that any code may have: they stand before its own."""
    said = TABLE[refused.at.refusal.code](refused)
    if (elsewhere := operand.over_other_axis(refused, said)) is not None:
        return elsewhere
    pending = _pending_gradient(refused)
    if pending is not None:
        gradient, parameter, scale = pending
        fact = f"{gradient} is a gradient, or made of one, and nobody has summed it over {refused.axis}"
        parts = buckets_met(refused.located.location) if any(map(is_pieced, refused.located.values)) else ()
        if parts:  # the other elements are summed, and another sum of all would add them up again
            return replace(said, facts=(*said.facts, fact), help=tuple(fix.help for fix in parts), fixes=parts)
        mean = (
            averaged_before(refused.located.location, [parameter], refused.at.axis, refused.op)
            if parameter is not None
            else ()
        )
        said = replace(said, facts=(*said.facts, fact), unsummed=_unsummed(refused, gradient, parameter))
        if mean:
            return replace(said, help=tuple(fix.help for fix in mean), fixes=mean)
        ways_of_sum = sums_by_hand(gradient, refused.at.axis, scale, f"before {refused.op}")
        location = refused.located.location
        made_so = sum_of_operand(location, gradient, parameter, refused.at.axis, ways_of_sum)
        return replace(said, help=(*(way.help for way in ways_of_sum), *said.help), fixes=made_so)
    ways: list[str] = []
    steps: list[Fix] = []
    for plan in refused.repairs:
        placed = [(refused.spots[step.position], step) for step in plan.steps]
        calls = [
            f"{step.op}({refused.name(position)}, {refused.argument}, src={step.src!r}, dst={step.dst!r}"
            f"{', ' if (options := refused.options(position, step)) else ''}{options})"
            for position, step in placed
        ]
        doubt = refused.doubt(placed)
        ways.append(f"{' and '.join(calls)} before {refused.op} ({plan.steps[0].effect}){doubt}")
        steps += refused.fix(ways[-1], placed, choice=bool(doubt))
    made = _summed_where_made(refused)
    ways += (fix.help for fix in made)
    steps += made
    if said.fixes and said.code == "SW101":  # they mend what made the operand, and not this one use of it
        return replace(said, help=(*said.help, *ways), fixes=(*said.fixes, *steps))
    return replace(said, help=(*ways, *said.help), fixes=(*steps, *said.fixes))


def _summed_where_made(refused: RefusedCall) -> tuple[Fix, ...]:
    """The first sum that would be enough, made where another function of the program left it pending."""
    for plan in refused.repairs:
        step = plan.steps[0]
        if len(plan.steps) == 1 and step.op == "all_reduce" and refused.at.axis is not None:
            at = refused.spots[step.position]
            doubt = refused.doubt([(at, step)])
            return summed_where_made(refused.located, at, refused.at.axis, repr(step.dst), doubt)
    return ()


def _unsummed(refused: RefusedCall, gradient: str, parameter: torch.Tensor | None) -> Unsummed | None:
    """The sum of a gradient of what is equal along the axis; what is made of a split one, as its norm, is another."""
    axis, values = refused.at.axis, refused.located.values
    if axis is None or parameter is None or not type_of(parameter).is_equal(axis):
        return None
    whole = [one for one in values if isinstance(one, torch.Tensor) and sizes_of(one) == sizes_of(parameter)]
    arrived = next((place for one in whole if (place := arrival(one)) is not None), None)
    return None if arrived is None else Unsummed(arrived, gradient)


def _pending_gradient(refused: RefusedCall) -> tuple[str, torch.Tensor | None, Exponent] | None:
    """The first of the operands at issue that is a gradient whose sum over the axis is pending, by name.

    And the parameter that it is the gradient of, while that is alive, and its scale along the axis.
    """
    for position in (*refused.culprits, *refused.others):
        type = refused.operands[position].type
        pending = isinstance(type, TensorType) and type.is_partial(refused.at.axis)
        origin = gradient_origin(tag_of(refused.located.values[position])) if pending else None
        if origin is not None:
            name, location = refused.located.name(position), refused.located.places[position]
            scale = type.exponent(refused.at.axis) if isinstance(type, TensorType) else None
            if location is None:  # it is read inside of torch, from a list of parameters
                return "p.grad", origin.parameter, scale
            text = pending_part(location, refused.at.axis) or name
            if is_path(text):
                return text, origin.parameter, scale
    return None


def _context(op: str, operands: Sequence[Bound], values: Sequence[object]) -> str:
    """The offending call with its operands, one per line, and the mesh it ran under."""
    lines = [f"    {operand.label}: {describe_value(value)}," for operand, value in zip(operands, values, strict=True)]
    entry = current_entry()
    mesh = "" if entry is None else f" under mesh {{{', '.join(map(axis_text, entry.ordered_axes))}}}"
    return "\n".join([f"  In {op}(", *lines, f"  ){mesh}"])
