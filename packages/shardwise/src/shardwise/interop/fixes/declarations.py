"""Declared functions of the program: that they keep types, where their code neither communicates nor asks for ranks,
and operands as their rules take them.
"""

from __future__ import annotations

import re

import torch.distributed as dist

from shardwise.diagnostics.fix import Fix, Insert, Rewrite, Wrap
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import I, P, Placement, R

from ..calls.located_call import LocatedCall
from .expressions import expression_of

_STEPS: dict[tuple[Placement, Placement], str] = {(P, R): "all_reduce", (P, I): "all_reduce", (I, R): "convert"}
_RANKS = re.compile(r"rank|world|group|mesh|dist", re.IGNORECASE)


def registered_before(location: SourceLocation | None, hook: object, help: str) -> tuple[Fix, ...]:
    """A backward hook vouched for before the call that runs it, if all that it names is known to be local."""
    name = expression_of(hook)
    if location is None or name is None or not _is_local(hook):
        return ()
    return (Fix(help, (Insert(location, (f"spmd.register_local_backward_hook({name})",)),), choice=True),)


def registered_function(location: SourceLocation | None, cls: type, help: str) -> tuple[Fix, ...]:
    """An autograd function vouched for before the call of it, if all that its two halves name is known to be local."""
    name, halves = expression_of(cls), [getattr(cls, half, None) for half in ("forward", "backward")]
    if location is None or name is None or not all(map(_is_local, halves)):
        return ()
    return (Fix(help, (Insert(location, (f"spmd.register_local_autograd_function({name})",)),), choice=True),)


def _is_local(function: object) -> bool:
    code = getattr(function, "__code__", None)
    return (
        code is not None
        and not code.co_freevars
        and not any(_RANKS.search(n) or hasattr(dist, n) for n in code.co_names)
    )


def as_its_rule_takes_it(
    located: LocatedCall, position: int, axis: MeshAxis, found: Placement, wanted: Placement
) -> tuple[Fix, ...]:
    """The operand of a function whose rule is for another placement, taken there first; or used without the function.

    What would be summed, and is complete already, needs no function that sums it.
    """
    name, span = located.names[position]
    if wanted is P and found.is_equal and len(located.names) == 1 and located.location is not None:
        help = f"use {name} as it is, without {located.op}: it is {found!r} ({found.word}) already"
        return () if span is None or "{}" in name else (Fix(help, (Rewrite(located.location, name),)),)
    op = _STEPS.get((found, wanted))
    if op is None or span is None:
        return ()
    argument, src, dst = axis_argument(axis), repr(found), repr(wanted)
    help = f"{op}({name}, {argument}, src={src}, dst={dst}) before {located.op}"
    return (Fix(help, (Wrap(span, op, argument, src, dst),)),)
