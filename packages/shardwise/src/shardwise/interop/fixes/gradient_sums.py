"""The sums of gradients over ranks: one that is missing, one over the wrong group, or one made too early."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType

import torch

from shardwise.diagnostics.fix import Fix, Insert, Leave, Remove, Replace, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import in_loop_of, location_in, loop_over, nodes_in
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.tensor_type import Exponent

from ..autograd.gradient_origin import gradient_origin
from ..calls.located_call import group_text, provenance
from ..tensors.dtensors import is_dtensor
from ..tensors.tagging import tag_of
from .expressions import (
    call_at,
    callee,
    expression_of,
    group_argument,
    is_path,
    keyword_of,
    parameter_expressions,
    ranks_of,
    tensors_of_expression,
    text_of,
    wrapper_of,
)

_MOST_NAMED = 8


@dataclass(frozen=True)
class ByHand:
    """A sum of gradients over ranks that the program makes itself, in the words of a help.

    ``divided``  by the number of ranks, afterwards; ``choice``: whether it is right to do so is not known.
    """

    help: str
    divided: bool = False
    choice: bool = False


def sums_by_hand(gradient: str, axis: MeshAxis, scale: Exponent, when: str, loop: str = "") -> tuple[ByHand, ...]:
    """The sums of a gradient with this exponent of the size of the axis; both that may be meant if it is not known.

    ``when``  ``before norm``; ``loop``: ``for p in parameters: `` where it is that of each.
    """
    group = group_argument(axis)
    total = f"{loop}dist.all_reduce({gradient}, group={group_text(axis)})"
    mean = f"and {gradient} /= {axis.size() if group is None else ranks_of(group)}"
    if scale == 1:
        return (ByHand(f"{total} {mean} {when}", divided=True),)
    if scale is not None:
        return (ByHand(f"{total} {when}"),)
    doubt = f"{mean} after that, if the loss is the mean of each rank's own samples"
    return ByHand(f"{total} {when}", choice=True), ByHand(doubt, divided=True, choice=True)


def sum_before_step(
    location: SourceLocation | None,
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.Tensor],
    axis: MeshAxis,
    ways: Sequence[ByHand],
    *,
    every: bool,
    owed: bool,
) -> tuple[Fix, ...]:
    """The sum of these gradients before the step of the optimizer, in each of these ways.

    ``every``  it has no others; ``owed``: their wrapper was called, and kept from its sum.
    """
    name, group = expression_of(optimizer), group_argument(axis)
    if location is None or group is None or (every and name is None):
        return ()
    wrapper = wrapper_of(parameters)
    if wrapper is not None:
        if not owed:
            return _through_wrapper(location, *wrapper)
        return averaged_before(location, parameters, axis, "it")
    if not every or any(map(is_dtensor, parameters)):
        return tuple(fix for way in ways for fix in _sum_before(location, parameters, group, way))
    every_one = f'(one for group in {name}.param_groups for one in group["params"])'
    return tuple(_inserted(location, _sum_of_each(every_one, group, divided=way.divided), way) for way in ways)


def averaged_before(
    location: SourceLocation | None, parameters: Sequence[torch.Tensor], axis: MeshAxis, before: str
) -> tuple[Fix, ...]:
    """The mean that DistributedDataParallel of these parameters has not made, before a statement.

    Where the program calls what is wrapped, the call goes through the wrapper instead.
    """
    wrapper, group = wrapper_of(parameters), group_argument(axis)
    if location is None or wrapper is None or group is None:
        return ()
    through = _through_wrapper(location, *wrapper)
    if through:
        return through
    lines = _sum_of_each(f"{wrapper[0]}.parameters()", group, divided=True)
    help = f"sum and average the gradients of {wrapper[0]} over {axis_argument(axis)} before {before}"
    return (Fix(help, (Insert(location, lines),)),)


def _sum_of_each(parameters: str, group: str, *, divided: bool = False) -> tuple[str, ...]:
    """The statements that sum the gradients, where there are some, of what an expression goes through.

    ``divided``  by the number of ranks, afterwards.
    """
    lines = _sum_of("parameter.grad", group, divided=divided)
    return (
        f"for parameter in {parameters}:",
        "    if parameter.grad is not None:",
        *(f"        {line}" for line in lines),
    )


def synchronised(location: SourceLocation | None, method: str, help: str) -> tuple[Fix, ...]:
    """``method(True)``, as ``set_requires_gradient_sync``, where the program says False before the step."""
    if location is None:
        return ()
    for node in nodes_in(location.file):
        if isinstance(node, ast.Call) and text_of(location, node.func).endswith(f".{method}"):
            said = node.args[0] if node.args else None
            if isinstance(said, ast.Constant) and said.value is False:
                return (Fix(help, (Rewrite(location_in(location, said), "True"),)),)
    return ()


def _through_wrapper(location: SourceLocation, wrapper: str, module: str) -> tuple[Fix, ...]:
    """The last call of the module before the step goes through what wraps it, which sums and averages."""
    calls = [
        node
        for node in nodes_in(location.file)
        if isinstance(node, ast.Call) and text_of(location, node.func) == module and node.lineno < location.line
    ]
    last = max(calls, key=lambda node: node.lineno, default=None)
    if last is None:
        return ()
    edit = Rewrite(location_in(location, last.func), wrapper)
    return (Fix(f"{wrapper}(...) in place of {module}(...), so that the gradients are averaged", (edit,)),)


def sum_before(
    location: SourceLocation | None, parameters: Sequence[torch.Tensor], axis: MeshAxis, help: str
) -> tuple[Fix, ...]:
    """The sum of the gradients of these parameters, each of them by name, before the statement at ``location``."""
    group = group_argument(axis)
    return () if location is None or group is None else _sum_before(location, parameters, group, ByHand(help))


def _sum_before(
    location: SourceLocation, parameters: Sequence[torch.Tensor], group: str, way: ByHand
) -> tuple[Fix, ...]:
    # A collective takes the local part of a DTensor, and writes into it.
    texts, kinds = parameter_expressions(parameters), {is_dtensor(parameter) for parameter in parameters}
    gradient = "grad.to_local()" if kinds == {True} else "grad"
    if not texts or len(kinds) != 1 or len(texts) > _MOST_NAMED:
        return ()
    if len(texts) == 1:
        return (_inserted(location, _sum_of(f"{texts[0]}.{gradient}", group, divided=way.divided), way),)
    lines = _sum_of(f"parameter.{gradient}", group, divided=way.divided)
    return (_inserted(location, (f"for parameter in ({', '.join(texts)}):", *(f"    {line}" for line in lines)), way),)


def _inserted(location: SourceLocation, lines: Sequence[str], way: ByHand) -> Fix:
    return Fix(way.help, (Insert(location, tuple(lines)),), way.choice)


def _sum_of(gradient: str, group: str, *, divided: bool) -> tuple[str, ...]:
    return (f"dist.all_reduce({gradient}{group})", *([f"{gradient} /= {ranks_of(group)}"] if divided else []))


def sum_of_operand(
    location: SourceLocation | None,
    gradient: str,
    parameter: torch.Tensor | None,
    axis: MeshAxis,
    ways: Sequence[ByHand],
) -> tuple[Fix, ...]:
    """The sum of a gradient that an operator is about to use, in each of these ways.

    In a comprehension it stands before it: for the one parameter, or for all that it goes through.
    """
    group = group_argument(axis)
    if location is None or group is None:
        return ()
    return tuple(fix for way in ways for fix in _operand_summed(location, gradient, parameter, group, way))


def _operand_summed(
    location: SourceLocation, gradient: str, parameter: torch.Tensor | None, group: str, way: ByHand
) -> tuple[Fix, ...]:
    clipped = _clipped(location)
    if clipped is not None:
        return (_inserted(location, _sum_of_each(clipped, group, divided=way.divided), way),)
    if not is_path(gradient):
        return ()
    lines = _sum_of(gradient, group, divided=way.divided)
    through = _comprehension(location, gradient.partition(".")[0])
    if through is None:
        return (_inserted(location, lines, way),)
    whole, iterated = through
    one = () if parameter is None else _sum_before(whole, [parameter], group, way)
    loop = (f"for {gradient.partition('.')[0]} in {iterated}:", *(f"    {line}" for line in lines))
    return (*one, _inserted(whole, loop, way))


def pending_part(location: SourceLocation, axis: object) -> str | None:
    """The gradient in an expression, as ``p.grad`` in ``0.1 * p.grad``, whose sum over the axis is pending."""
    for text, tensor in tensors_of_expression(location):
        tag = tag_of(tensor)
        if tag is not None and tag.type.is_partial(axis) and gradient_origin(tag) is not None:
            return text
    return None


def _clipped(location: SourceLocation) -> str | None:
    """What torch's clipping is given, if that is the call; it takes the gradients itself."""
    call = call_at(location)
    name = "" if call is None else callee(location, call)
    if call is None or not call.args or name not in ("clip_grad_norm_", "clip_grad_value_", "get_total_norm"):
        return None
    return text_of(location, call.args[0]) if name != "get_total_norm" else None


def without_sum(gradient: torch.Tensor | None, axis: MeshAxis, help: str) -> tuple[Fix, ...]:
    """The statement that has summed a gradient already, left out."""
    made = _call_that_made(gradient, axis)
    call = call_at(made)
    if made is None or call is None or callee(made, call) != "all_reduce":
        return ()
    return (Fix(help, (Remove(made),)),)


def without_own_sum(code: CodeType | None, help: str) -> tuple[Fix, ...]:
    """A function of gradients without the one sum over ranks that it makes itself."""
    if code is None:
        return ()
    lines = {line for _, _, line in code.co_lines() if line is not None}
    calls = [node for node in nodes_in(code.co_filename) if isinstance(node, ast.Call) and node.lineno in lines]
    place = SourceLocation(code.co_filename, code.co_firstlineno)
    sums = [call for call in calls if callee(place, call) == "all_reduce"]
    if len(sums) != 1 or not sums[0].args:
        return ()
    where = location_in(place, sums[0])
    if keyword_of(sums[0], "src") is None:
        return (Fix(help, (Remove(where),)),)
    return (Fix(help, (Replace(where, location_in(place, sums[0].args[0])),)),)


def each_once(gradient: torch.Tensor, name: str, location: SourceLocation | None, axis: MeshAxis) -> tuple[Fix, ...]:
    """The loop in which one call sums what it has summed already goes through every parameter once."""
    loop = None if location is None else loop_over(location, name.partition(".")[0])
    if location is None or loop is None or location not in [hop.location for hop in provenance(gradient, axis)]:
        return ()
    where, text = location_in(location, loop), text_of(location, loop)
    if text.startswith("dict.fromkeys("):
        return ()
    help = f"dict.fromkeys({text}), which has every parameter once"
    return (Fix(help, (Rewrite(where, "dict.fromkeys({})"),)),)


def once_after_loop(
    gradient: torch.Tensor, location: SourceLocation | None, axis: MeshAxis, help: str
) -> tuple[Fix, ...]:
    """The sum that was made, moved behind the loop in which backward, at ``location``, runs."""
    made = _call_that_made(gradient, axis)
    if made is None or location is None:
        return ()
    for place in (made, *_callers(made, location)):
        if place.file == location.file and in_loop_of(location, place):
            return (Fix(help, (Leave(place, location),)),)
    return ()


def _call_that_made(gradient: torch.Tensor | None, axis: MeshAxis) -> SourceLocation | None:
    """The call in the program from which a gradient has its placement on the axis."""
    return next((hop.location for hop in provenance(gradient, axis) if call_at(hop.location) is not None), None)


def _callers(made: SourceLocation, location: SourceLocation) -> list[SourceLocation]:
    """The calls, in the file of ``location``, of the function in which ``made`` is."""
    name = made.function.rpartition(".")[2]
    calls = (node for node in nodes_in(location.file) if isinstance(node, ast.Call))
    return [location_in(location, call) for call in calls if callee(location, call) == name]


def _comprehension(location: SourceLocation, name: str) -> tuple[SourceLocation, str] | None:
    """The comprehension around ``location`` whose target is ``name``, and what it goes through."""
    for node in nodes_in(location.file):
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp) and _is_around(node, location):
            for one in node.generators:
                if text_of(location, one.target) == name and not one.ifs:
                    return location_in(location, node), text_of(location, one.iter)
    return None


def _is_around(node: ast.expr, location: SourceLocation) -> bool:
    first = (node.lineno, node.col_offset) <= (location.line, location.column or 0)
    end = (location.end_line or location.line, location.end_column or 0)
    return first and end <= (node.end_lineno or node.lineno, node.end_col_offset or 0)
