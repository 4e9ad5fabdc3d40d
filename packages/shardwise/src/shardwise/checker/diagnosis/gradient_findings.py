"""What is said of gradients on their way, per code: SW604 to SW607. Those of parameters go by their names."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source_location import Operand
from shardwise.interop.autograd.gradient_origin import gradient_origin, owner_of
from shardwise.interop.autograd.gradients import gradient_of
from shardwise.interop.autograd.parameter_names import listed, names_of
from shardwise.interop.calls.located_call import (
    LocatedCall,
    axis_text,
    gradients_as_operands,
    report,
)
from shardwise.interop.fixes.buckets import buckets_met
from shardwise.interop.fixes.collective_calls import over_axis
from shardwise.interop.fixes.gradient_sums import each_once, once_after_loop, without_own_sum
from shardwise.interop.running.session import Session
from shardwise.interop.tensors.memory_pieces import Piece, region_of
from shardwise.interop.tensors.tagging import forget_memory, replace_pieces, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import Placement
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, Power, TensorType

from .function_findings import last_return, line_of_gradient
from .scale_texts import scale_text

_RANGES = 3


def passed_on_unsummed(op: str, name: str, axis: MeshAxis, src: Placement, *, addends: bool) -> Diagnosis:
    """SW606 of a collective in place, which is nothing to autograd. ``addends``: it sums, on every rank."""
    detached = f"{name}.detach() before it, if no gradient is meant"
    if not addends or src.is_equal:
        return Diagnosis(
            "SW606",
            f"backward passes the gradient of {name} through {op} over {axis_text(axis)} as it is",
            (f"torch.distributed.{op} is nothing to autograd, which takes its result to be {name} unchanged",),
            (detached,),
        )
    result = f"{name} = " if name.replace(".", "").isidentifier() else ""
    typed = f"{result}all_reduce({name}, {axis_argument(axis)}, src={src!r}"
    return Diagnosis(
        "SW606",
        f"backward passes the gradient of {name} through {op} as it is: a partial sum over {axis_text(axis)}, "
        "which nobody sums",
        (
            f"torch.distributed.{op} is nothing to autograd: each of the {axis.size()} ranks goes on with "
            "its own addend of the gradient",
        ),
        (
            f"{typed}, dst=R) in its place, which sums in backward too",
            f"{typed}, dst=I) in its place, if every rank computes the same from here on",
            detached,
        ),
    )


def elements_text(tensor: torch.Tensor, pieces: Sequence[Piece]) -> str:
    """The elements of ``tensor`` that lie in ``pieces`` of its memory: ``elements 4 to 7 of 8``."""
    wanted = [(piece.start, piece.stop) for piece in pieces]
    ranges: list[list[int]] = []
    region = region_of(tensor)
    at = 0
    for low, high in () if region is None else region.ranges:
        item = tensor.element_size()
        for start, stop in wanted:
            first, last = max(low, start), min(high, stop)
            if first < last:
                numbers = [at + (first - low) // item, at + (last - low) // item]
                if ranges and ranges[-1][1] == numbers[0]:
                    ranges[-1][1] = numbers[1]
                else:
                    ranges.append(numbers)
        at += (high - low) // item
    more = len(ranges) - _RANGES
    noun = "element" if len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1 else "elements"
    shown = " and ".join(f"{a} to {b - 1}" if b - a > 1 else f"{a}" for a, b in ranges[:_RANGES])
    return f"{noun} {shown}{f' and {more} more ranges' if more > 0 else ''} of {at}"


def gradient_sum_not_owed(
    session: Session,
    op: str,
    axis: MeshAxis,
    tensor: torch.Tensor,
    type: TensorType,
    within: Sequence[Piece] = (),
    *,
    forgets: bool = True,
) -> bool:
    """SW605 if ``op`` sums a gradient over ``axis``, along which it is no pending sum; False if it is no gradient.

    A gradient that varies because its parameter does is a list of gradients of different pieces. A value made of
    gradients may vary and be summed, as the squares of a norm are.
    ``within``   the pieces of which that is so, if it is not of all.
    ``forgets``  nothing is known of the gradient from here on.
    """
    origin, owner = gradient_origin(tag_of(tensor)), owner_of(tensor)
    if origin is None or type.ground is not Ground.ABSENT:
        return False
    place = type.get(axis)
    parameter = owner if owner is not None else origin.parameter
    if type.is_varying(axis) and (owner is None or not type_of(owner).is_varying(axis)):
        return False
    if owner is None and not within and (parameter is None or tensor.numel() < parameter.numel()):
        return False
    located = LocatedCall(op, [("tensor", tensor)])
    where, size = axis_text(axis), axis.size()
    what = f"the gradient of {names_of([owner])[0]}" if owner is not None else f"{located.name(0)}, made of gradients,"
    if type.is_varying(axis):
        why = "which holds a different piece of the parameter on each rank"
        fact = f"the gradients of {size} different pieces would be added up"
    else:
        why = f"which is {place.word} there and owes no sum"
        fact = f"summing {size} equal values multiplies them by {size}"
    if within:
        what = f"{elements_text(tensor, within)} of {located.name(0)}, made of gradients,"
    message = f"{op} sums {what} over {where}, {why}"
    owed = [one for one in type.axes if type.is_partial(one)]
    help_lines = [f"leave out this {op} over {where}"]
    fixes = located.removed(help_lines[0])
    if owed:
        help_lines.append(f"{op} over {' and '.join(map(axis_text, owed))}, along which the sum is pending")
        if len(owed) == 1:
            fixes = (*over_axis(located.location, owed[0], help_lines[-1], raw=True), *fixes)
    once = each_once(tensor, located.name(0), located.location, axis)
    help_lines += [fix.help for fix in once]
    fixes = (*once, *fixes)
    parts = buckets_met(located.location) if within else ()
    if parts:  # the other elements owe the sum
        help_lines, fixes = [fix.help for fix in parts], parts
    try:
        report(session, located, Diagnosis("SW605", message, (fact,), tuple(help_lines), fixes), axis)
    finally:
        if within:
            replace_pieces(tensor, [replace(piece, type=UNKNOWN_TYPE) for piece in within])
        elif forgets:
            forget_memory(tensor if owner is None else owner.grad)
    return True


def accumulation_conflict(
    session: Session, axis: MeshAxis, parameters: Sequence[torch.Tensor], located: LocatedCall | None = None
) -> None:
    """SW604: a pending sum is added to gradients that have been summed over ``axis`` already.

    ``located``  the backward pass that adds it, where it has been; None: it is about to.
    """
    names = names_of(parameters)
    where, size = axis_text(axis), axis.size()
    what = listed(names)
    it, them, noun, verb = ("it", "it has", "gradient", "has")
    if len(names) > 1:
        it, them, noun, verb = ("them", "they have", "gradients", "have")
    said = Diagnosis(
        "SW604",
        f"backward adds a pending sum over {where} to the {noun} of {what}, which {verb} been summed already",
        (
            f"one more sum over {where} would count what {them} been summed to {size} times, and without it the new "
            f"part of {it} misses the other ranks",
        ),
        (
            "optimizer.zero_grad() before backward, if a new step begins here",
            f"sum the gradients over {axis_argument(axis)} once, after the last micro-batch",
        ),
    )
    operands = gradients_as_operands(parameters, names, axis)
    located = located or LocatedCall("backward", [])
    gradient = gradient_of(parameters[0])
    if gradient is not None:
        said = replace(said, fixes=once_after_loop(gradient, located.location, axis, said.help[1]))
    report(session, located, said, axis, operands=operands)


def _called(hook: object) -> str:
    name: str = getattr(hook, "__qualname__", type(hook).__qualname__)
    return name.split(".<locals>.")[-1].removesuffix(".<lambda>")


def not_dual(
    session: Session, hook: object, axis: MeshAxis, own: Placement, expected: Placement, found: Placement
) -> None:
    """SW606: a hook returns a gradient whose type is not the dual of its tensor's."""
    where = axis_text(axis)
    message = (
        f"the hook {_called(hook)} makes the gradient of a tensor that is {own.word} over {where} "
        f"{found.word}, where {expected.word} is wanted"
    )
    facts, help_lines = [], []
    if expected.is_partial:
        facts.append(f"what comes before this tensor sums its gradient over {where}: {axis.size()} times too much")
        help_lines.append("leave the sum to the collectives before it, or put the hook on the parameter itself")
    code = getattr(hook, "__code__", None)
    fixes = without_own_sum(code, help_lines[0]) if help_lines else ()
    said = Diagnosis("SW606", message, tuple(facts), tuple(help_lines), fixes)
    located = LocatedCall("backward", [])
    started = Operand("backward", f"runs the hook {_called(hook)}", located.location)
    located.location = fixes[0].edits[0].location if fixes else last_return(code) or located.location
    report(session, located, said, axis, operands=(started,))


def rescaled(session: Session, hook: object, axis: MeshAxis, exponent: Power) -> None:
    """SW606: a hook inside the graph returns a gradient that is too large or small by a power of the axis's size."""
    message = f"the gradient that the hook {_called(hook)} returns {scale_text(axis, exponent)} over {axis_text(axis)}"
    fact = "whatever this tensor was made of gets its gradient in that scale, and nothing tells the optimizer"
    way = "scale the loss, or the gradients of the parameters, where the optimizer is told"
    located = LocatedCall("backward", [])
    started = Operand("backward", f"runs the hook {_called(hook)}", located.location)
    located.location = last_return(getattr(hook, "__code__", None)) or located.location
    report(session, located, Diagnosis("SW606", message, (fact,), (way,)), axis, operands=(started,))


def wrong_backward(
    session: Session,
    cls: type,
    position: int,
    axis: MeshAxis,
    own: Placement,
    found: Placement,
    gradient: torch.Tensor,
) -> None:
    """SW607: the backward of a declared function returns a gradient that is not the dual of its input's type."""
    expected = own.dual
    names = list(inspect.signature(cls.forward).parameters)  # type: ignore[attr-defined]
    names = names[1:] if names[:1] == ["ctx"] else names
    name = names[position] if position < len(names) else f"input {position}"
    where = axis_text(axis)
    message = (
        f"the backward of {cls.__qualname__} gives {name}, which is {own.word} over {where}, a gradient that "
        f"is {found.word} there, where {expected.word} is wanted"
    )
    if found.is_partial:
        fact = f"each of the {axis.size()} ranks returns its own addend, and nobody sums them"
        help_lines = (f"dist.all_reduce (or reduce-scatter) over {where} in {cls.__qualname__}.backward",)
    elif expected.is_partial:
        fact = f"the gradient is summed here, and summed again by what owes the sum: {axis.size()} times too much"
        help_lines = (f"return each rank's addend, or declare {name} invariant over {where}",)
    else:
        fact = "what is equal on all ranks would get gradients that are not"
        help_lines = (f"return the same gradient on every rank of {where}, or declare another type for {name}",)
    located = LocatedCall("backward", [])
    started = Operand("backward", f"gives {name} {found!r} over {where}", located.location)
    located.location = line_of_gradient(cls, gradient, axis) or located.location
    report(session, located, Diagnosis("SW607", message, (fact,), help_lines), axis, operands=(started,))
