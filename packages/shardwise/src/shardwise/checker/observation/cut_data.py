"""Data that a program deals out by hand: what it cuts by a rank's number is each rank's own.

x, y = data[rank::world], target.chunk(world)[rank]    with a wrapper that averages gradients over these ranks

Nobody has typed ``data``, and whatever it is, the cut differs from rank to rank as the rank's number does. So it is V
over that axis; with global types S(i), where the cuts are the parts of dim i (``own_parts``), in whatever order: no
more is said of the batches of a sampler.
Parameters are cut like that too, over ranks that share one model, so it is said over the ranks of an average alone.
"""

from __future__ import annotations

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.tensors.tagging import Origin, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.types.placement import V
from shardwise.types.spec import PartitionSpec, make_entry
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..call.arguments import Op
from ..operators.ordinary import Handler
from ..parts.own_parts import own_parts
from ..state.session import CheckSession
from .inputs import is_data, put_type

CUTS = frozenset({"getitem", "narrow", "narrow_copy", "select"})


def dealing_out(op: Op, handler: Handler) -> Handler:
    """The handler of an operator that takes a part of a tensor; the part of data that is a rank's own gets a type."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        result = handler(session, func, args, kwargs)
        if session.observe and session.averaged and isinstance(result, torch.Tensor):
            _type_cut(session, op, args, kwargs, result)
        return result

    return handle


def _type_cut(session: CheckSession, op: Op, args: Arguments, kwargs: Keywords, cut: torch.Tensor) -> None:
    x: object = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if not isinstance(x, torch.Tensor) or type_of(x) is not UNTYPED or not (is_data(x) and is_data(cut)):
        return
    dims = {axis: dim for axis, dim in own_parts(op, args, kwargs, of_data=True).items() if session.averages(axis)}
    if dims and (session.local or None not in dims.values()):
        by_dim = [make_entry([axis for axis, dim in dims.items() if dim == at]) for at in range(cut.ndim)]
        spec = None if session.local else PartitionSpec(*by_dim)
        put_type(cut, TensorType.of(dict.fromkeys(dims, V), spec), Origin(user_site(), "cut by the number of the rank"))
