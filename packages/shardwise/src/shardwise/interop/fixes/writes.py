"""What is written in place and changes a type: made equal over the ranks first, or a new tensor under the old name."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

import torch

from shardwise.diagnostics.fix import Fix, Rewrite, Wrap
from shardwise.diagnostics.syntax import node_at
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import P, Placement
from shardwise.types.spec import partition_spec_get_shard

from ..calls.located_call import LocatedCall
from ..tensors.tagging import sizes_of, type_of
from .expressions import is_path, text_of


def equal_before_write(located: LocatedCall, axis: MeshAxis, wanted: Placement) -> Iterator[Fix]:
    """What is written made equal over the ranks first, as the destination is.

    The first operand of ``located`` is the destination, whose placement is ``wanted``: R or I.
    """
    if not wanted.is_equal:
        return
    argument, size = axis_argument(axis), sizes_of(located.values[0])
    for (name, span), value in list(zip(located.names, located.values, strict=True))[1:]:
        if span is None or not isinstance(value, torch.Tensor):
            continue
        type = type_of(value)
        shard = partition_spec_get_shard(type.spec, axis)
        if type.get(axis) is P:
            op, src, doubt = "all_reduce", "P", ""
        elif shard is not None and math.prod(size) == math.prod(sizes_of(value)) * axis.size():
            op, src, doubt = "all_gather", repr(shard), ""
        elif type.is_varying(axis) and shard is None:
            op, src, doubt = "all_reduce", "V", ", if the ranks' values are to be added up"
        else:
            continue
        help = f"{op}({name}, {argument}, src={src}, dst={wanted!r}) before {located.op}{doubt}"
        yield Fix(help, (Wrap(span, op, argument, src, repr(wanted)),), choice=bool(doubt))


def made_anew(located: LocatedCall, help: str) -> tuple[Fix, ...]:
    """``h = h.mul(x)`` for the statement ``h.mul_(x)``: nobody else who holds ``h`` sees that; not of a parameter."""
    location, value = located.location, located.values[0]
    call = None if location is None else node_at(location)
    if location is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ()
    name, op = text_of(location, call.func.value), call.func.attr
    is_parameter = isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
    plain = op.endswith("_") and hasattr(torch.Tensor, op[:-1])
    if is_parameter or not plain or not is_path(name) or name.endswith((".data", ".grad")):
        return ()
    if call.lineno != call.end_lineno:
        return ()  # a comment in it would be lost
    given = text_of(location, call)[len(f"{name}.{op}") :]
    return (Fix(help, (Rewrite(location, f"{name} = {name}.{op[:-1]}{given}"),), choice=True),)
