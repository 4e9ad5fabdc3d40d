"""What is said of losses and gradients, per code: SW601 to SW609. Gradients go by their parameters' names."""

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
    group_text,
    placement_text,
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
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from .function_findings import last_return, line_of_gradient
from .scale_texts import scale_text

_RANGES = 3


def replicated_loss(name: str, axis: MeshAxis) -> Diagnosis:
    size = axis.size()
    return Diagnosis(
        "SW601",
        f"backward starts from {name}, which is replicate over {axis_text(axis)}",
        (f"each of the {size} ranks seeds a gradient of 1, and they are summed: {size} times too much",),
        (
            f"dst=I in the collective over {axis_argument(axis)} that makes {name} replicate, so that it is invariant",
            f"backward on the partial loss, before its all_reduce over {axis_text(axis)}",
            f"convert({name}, {axis_argument(axis)}, src=R, dst=P), which one rank starts from, if no collective does",
        ),
    )


def varying_loss(name: str, axis: MeshAxis) -> Diagnosis:
    step = f"{axis_argument(axis)}, src=V, dst=P)"
    return Diagnosis(
        "SW602",
        f"backward starts from {name}, which varies over {axis_text(axis)}",
        ("a list of different losses has no gradient; their sum has one",),
        (
            f"reinterpret({name} / {axis.size()}, {step} if their mean over the {axis.size()} ranks is the loss",
            f"reinterpret({name}, {step} if the ranks' losses are to be added",
        ),
    )


def untyped_loss(name: str, axes: Sequence[MeshAxis]) -> Diagnosis:
    types = ", ".join(f"{axis_argument(axis)}: I" for axis in axes) or "...: I"
    way = f"assert_type({name}, {{{types}}}), or P over axes whose ranks' losses are to be added"
    return Diagnosis("SW603", f"backward starts from {name}, which has no type", help=(way,))


def seed_not_dual(
    name: str, seed: str, axis: MeshAxis, own: Placement, wanted: Placement, found: Placement
) -> Diagnosis:
    """SW606 of a gradient that is given to ``backward``."""
    fact = "each rank would go on with its own addend of the gradient"
    if wanted.is_partial:
        fact = f"{axis.size()} equal gradients would be summed: {axis.size()} times too much"
    return Diagnosis(
        "SW606",
        f"backward gets {seed}, {placement_text(found)} over {axis_text(axis)}, as the gradient of {name}, which is "
        f"{placement_text(own)} there; its gradient is {placement_text(wanted)}",
        (fact,),
    )


def tangent_not_alike(name: str, tangent: str, axis: MeshAxis, own: Placement, found: Placement) -> Diagnosis:
    """SW630."""
    size = axis.size()
    if own.is_partial:
        fact = f"{name} is a sum over {size} ranks: with {tangent} on each of them it changes by {size} times {tangent}"
    else:
        fact = f"{name} is equal on the {size} ranks, and cannot change by something else on each of them"
    return Diagnosis(
        "SW630",
        f"{tangent} is {placement_text(found)} over {axis_text(axis)}, and the tensor whose tangent it is, {name}, "
        f"is {placement_text(own)} there",
        (fact,),
    )


def elements_apart(name: str, axis: MeshAxis) -> Diagnosis:
    """SW405 of a jacobian with a row or column for each element of a shard."""
    return Diagnosis(
        "SW405",
        f"a jacobian has a row or a column for each element of {name}, which is sharded over {axis_text(axis)}",
        (f"each of the {axis.size()} ranks lists its own elements, and all ranks move one of theirs at once",),
        (
            "jacrev lists the elements of the result, jacfwd those of the argument: take the one that is whole",
            f"all_gather({name}, {axis_argument(axis)}, src=S(i), dst=R) before it",
        ),
    )


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


def gradient_not_summed(
    op: str, names: Sequence[str], axis: MeshAxis, *, pending: bool, facts: Sequence[str] = ()
) -> Diagnosis:
    """SW608. ``pending``: the gradients are addends; otherwise they vary, though the parameters do not.

    ``facts``  of which elements that is so, where it is not of all.
    """
    where, size, one = axis_text(axis), axis.size(), len(names) == 1
    what = f"the gradient of {names[0]}, which" if one else f"the gradients of {listed(names)}, which"
    state = f"{'is' if one else 'are'} not summed over" if pending else f"{'differs' if one else 'differ'} over"
    fact = f"each of the {size} ranks steps with its own addend, and what should be equal there drifts apart"
    if not pending:
        fact = f"each of the {size} ranks steps with a gradient of its own, and what should be equal drifts apart"
    return Diagnosis(
        "SW608",
        f"{op} takes {what} {state} {where}",
        (fact, *facts),
        (
            f"for p in parameters: dist.all_reduce(p.grad, group={group_text(axis)}) before it",
            "or DistributedDataParallel or fully_shard over that axis, which sum while backward runs",
        ),
    )


def gradient_kept_back(op: str, names: Sequence[str], axis: MeshAxis) -> Diagnosis:
    """SW608 of parameters for which ``fully_shard`` has gradients that it was told not to sum."""
    one = len(names) == 1
    return Diagnosis(
        "SW608",
        f"{op} sees no gradient of {listed(names)}: fully_shard owes {'its' if one else 'their'} sum over "
        f"{axis_text(axis)} and was told not to synchronise",
        (f"the addends of {axis.size()} ranks wait in fully_shard, and the step changes nothing",),
        ("model.set_requires_gradient_sync(True) before the backward of the last micro-batch",),
    )


def gradient_unseen(op: str, names: Sequence[str]) -> Diagnosis:
    """SW615."""
    one = len(names) == 1
    return Diagnosis(
        "SW615",
        f"{op} takes the gradient{'' if one else 's'} of {listed(names)}, of which nothing is known",
        (f"{'it was' if one else 'they were'} made where nothing is checked, or assigned without a type",),
        (
            "run backward inside the checked block",
            "assert_type(p.grad, ...) where it is assigned, with the type that it has",
        ),
    )


def gradient_misplaced(op: str, name: str, range: str, found: str) -> Diagnosis:
    """SW614: elements of the gradient called ``name`` are those that ``found`` says."""
    return Diagnosis(
        "SW614",
        f"{op} takes the gradient of {name}, of which {range} are {found}",
        ("what was copied out of a bucket is not what was copied into it: the offsets differ",),
        (f"copy {name}.grad out of the place in the bucket that it was copied into",),
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


def gradient_off_scale(op: str, names: Sequence[str], axis: MeshAxis, exponent: int) -> Diagnosis:
    """SW616, of gradients whose scale has this exponent."""
    where, size, what = axis_text(axis), axis.size(), listed(names)
    noun, verb = ("gradient", "is") if len(names) == 1 else ("gradients", "are")
    if exponent < 0:
        fact = (
            f"a division by {size}, or an average over {size} ranks, is right where the loss is {size} times too large"
        )
        ways = (
            f"leave out one division by the size of {where}, or sum the gradients where they are averaged",
            f"a loss that is a mean over each rank's own samples, if a wrapper averages over {axis_argument(axis)}",
        )
    else:
        fact = f"the mean of each rank's own samples is {size} times its part of the mean of all, and nothing averages"
        ways = (
            f"divide the loss, or the summed gradients, by mesh.size({axis_argument(axis)})",
            f"or average them over {axis_argument(axis)}: op=dist.ReduceOp.AVG, DistributedDataParallel, fully_shard",
        )
    return Diagnosis(
        "SW616",
        f"{op} takes the {noun} of {what}, which {verb} {size ** abs(exponent)} times too "
        f"{'large' if exponent > 0 else 'small'} over {where}",
        (fact,),
        ways,
    )


def local_gradient_norm(name: str, axis: MeshAxis) -> Diagnosis:
    where = axis_text(axis)
    return Diagnosis(
        "SW609",
        f"the gradient of {name} is scaled by a norm that differs between the ranks of {where}",
        (f"a norm of gradients that are split over {where} is that of one piece in {axis.size()}",),
        (
            "shardwise.train.clip_grad_norm_(parameters, max_norm), which counts every piece once",
            f"all_reduce of the squared norms of the split gradients over {axis_argument(axis)} before the root",
        ),
    )


def gradient_sum_not_owed(
    session: Session, op: str, axis: MeshAxis, tensor: torch.Tensor, type: TensorType, within: Sequence[Piece] = ()
) -> bool:
    """SW605 if ``op`` sums a gradient over ``axis``, along which it is no pending sum; False if it is no gradient.

    A gradient that varies because its parameter does is a list of gradients of different pieces. A value made of
    gradients may vary and be summed, as the squares of a norm are.
    ``within``  the pieces of which that is so, if it is not of all.
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
        else:
            forget_memory(tensor if owner is None else owner.grad)
    return True


def accumulation_conflict(session: Session, axis: MeshAxis, parameters: Sequence[torch.Tensor]) -> None:
    """SW604: a pending sum is about to be added to gradients that have been summed over ``axis`` already."""
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
    located = LocatedCall("backward", [])
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


def rescaled(session: Session, hook: object, axis: MeshAxis, exponent: int) -> None:
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
