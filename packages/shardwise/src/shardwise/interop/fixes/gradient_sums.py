"""The sums of gradients over ranks: one that is missing, one over the wrong group, or one made too early."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import torch

from shardwise.diagnostics.fix import Argument, Fix, Insert, Leave
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import loops_around, nodes_in
from shardwise.mesh.axis import MeshAxis

from ..calls.located_call import group_text, provenance
from ..tensors.dtensors import is_dtensor
from .expressions import call_at, expression_of, is_path, location_in, parameter_expressions, text_of

_MOST_NAMED = 8


def sum_before_step(
    location: SourceLocation | None,
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.Tensor],
    axis: MeshAxis,
    help: str,
    *,
    every: bool,
) -> tuple[Fix, ...]:
    """The sum of these gradients before the step of the optimizer; ``every``: it has no others."""
    name = expression_of(optimizer)
    if location is None or (every and name is None):
        return ()
    if not every or any(map(is_dtensor, parameters)):
        return sum_before(location, parameters, axis, help)
    lines = (
        f'for parameter in (one for group in {name}.param_groups for one in group["params"]):',
        "    if parameter.grad is not None:",
        f"        dist.all_reduce(parameter.grad, group={group_text(axis)})",
    )
    return _inserted(location, lines, help)


def sum_before(
    location: SourceLocation | None, parameters: Sequence[torch.Tensor], axis: MeshAxis, help: str
) -> tuple[Fix, ...]:
    """The sum of the gradients of these parameters, each of them by name, before the statement at ``location``."""
    texts = parameter_expressions(parameters)
    if location is None or not texts:
        return ()
    # A collective takes the local part of a DTensor, and writes into it.
    group, kinds = group_text(axis), {is_dtensor(parameter) for parameter in parameters}
    gradient = "grad.to_local()" if kinds == {True} else "grad"
    if len(texts) == 1:
        return _inserted(location, (f"dist.all_reduce({texts[0]}.{gradient}, group={group})",), help)
    if len(texts) <= _MOST_NAMED and len(kinds) == 1:
        lines = (f"for parameter in ({', '.join(texts)}):", f"    dist.all_reduce(parameter.{gradient}, group={group})")
        return _inserted(location, lines, help)
    return ()


def sum_of_operand(
    location: SourceLocation | None, gradient: str, parameter: torch.Tensor | None, axis: MeshAxis, help: str
) -> tuple[Fix, ...]:
    """The sum of a gradient that an operator is about to use.

    In a comprehension it stands before it: for the one parameter, or for all that it goes through.
    """
    if location is None or not is_path(gradient):
        return ()
    through = _comprehension(location, gradient.partition(".")[0])
    if through is None:
        return _inserted(location, (f"dist.all_reduce({gradient}, group={group_text(axis)})",), help)
    one = () if parameter is None else sum_before(location, [parameter], axis, help)
    target, iterated = through
    lines = (f"for {target} in {iterated}:", f"    dist.all_reduce({gradient}, group={group_text(axis)})")
    return (*one, *_inserted(location, lines, help))


def other_group(location: SourceLocation | None, axes: Sequence[MeshAxis], help: str) -> tuple[Fix, ...]:
    """The sum over the one axis along which it is pending."""
    if location is None or len(axes) != 1 or "<" in group_text(axes[0]):
        return ()
    return (Fix(help, (Argument(location, "group", group_text(axes[0]), 2),)),)


def once_after_loop(
    gradient: torch.Tensor, location: SourceLocation | None, axis: MeshAxis, help: str
) -> tuple[Fix, ...]:
    """The sum that was made, moved behind the loop in which backward, at ``location``, runs."""
    made = next((hop.location for hop in provenance(gradient, axis) if call_at(hop.location) is not None), None)
    if made is None or location is None:
        return ()
    for place in (made, *_callers(made, location)):
        if place.file == location.file and loops_around(place, location):
            return (Fix(help, (Leave(place, location),)),)
    return ()


def _callers(made: SourceLocation, location: SourceLocation) -> list[SourceLocation]:
    """The calls, in the file of ``location``, of the function in which ``made`` is."""
    name = made.function.rpartition(".")[2]
    calls = (node for node in nodes_in(location.file) if isinstance(node, ast.Call))
    return [location_in(location, call) for call in calls if text_of(location, call.func).rpartition(".")[2] == name]


def _comprehension(location: SourceLocation, name: str) -> tuple[str, str] | None:
    """The target, if that is ``name``, and what is gone through, of the comprehension around ``location``."""
    for node in nodes_in(location.file):
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp) and _is_around(node, location):
            for one in node.generators:
                if text_of(location, one.target) == name and not one.ifs:
                    return name, text_of(location, one.iter)
    return None


def _is_around(node: ast.expr, location: SourceLocation) -> bool:
    first = (node.lineno, node.col_offset) <= (location.line, location.column or 0)
    end = (location.end_line or location.line, location.end_column or 0)
    return first and end <= (node.end_lineno or node.lineno, node.end_col_offset or 0)


def _inserted(location: SourceLocation, lines: tuple[str, ...], help: str) -> tuple[Fix, ...]:
    return () if "<" in "".join(lines) else (Fix(help, (Insert(location, lines),)),)
