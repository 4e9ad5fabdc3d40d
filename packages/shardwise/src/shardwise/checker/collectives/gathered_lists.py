"""Pieces that a raw ``all_gather`` has put into a list: whoever joins them does it in their order, along their dim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.spec import entry_axes, partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

from ..operators.ordinary import Handler
from ..operators.own_parts import is_whole_cut
from ..state.session import CheckSession


@dataclass(frozen=True, slots=True, eq=False)
class GatheredList:
    """One gather of ``count`` pieces of a tensor that is sharded on ``dim`` over ``axis``."""

    axis: MeshAxis
    dim: int
    count: int


OWN_DIMS = {"hstack": 1, "column_stack": 1, "vstack": 0, "row_stack": 0, "dstack": 2}
"""The functions that join along a dim of their own; tensors of one dim are joined along it."""
_pieces: Any = WeakIdKeyDictionary()
"""For every piece: the gather that it comes from, and the rank whose piece it is."""


def note_gathered(axis: MeshAxis, sent: TensorType, received: Sequence[torch.Tensor]) -> None:
    """``received`` are the pieces of all ranks of ``axis``, each of the type ``sent``."""
    shards = [partition_spec_get_shard(sent.spec, one) for one in parts_of(axis, sent)]
    if not shards or any(shard is None for shard in shards) or len(received) != axis.size():
        return
    dims = {shard.dim for shard in shards if shard is not None}
    gather = GatheredList(axis, dims.pop(), len(received)) if len(dims) == 1 else None
    with no_torch_function():
        for rank, piece in enumerate(received):
            _pieces[piece] = gather, rank


def joining_pieces(usual: Handler) -> Handler:
    """The handler of a concatenation, which looks at where its pieces come from. Errors: SW223."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        given: Any = dict(zip(("tensors", "dim"), args, strict=False)) | dict(kwargs)
        tensors, dim = given.get("tensors"), given.get("dim", 0)
        packed = None if session.local else _packed(func, tensors, dim)
        if packed is not None:
            made: Any = func(*args, **kwargs)
            set_tag(made, Tag(packed, None if (tag := tag_of(tensors[0])) is None else tag.origin))
            return made
        result = usual(session, func, args, kwargs)
        if session.local or not isinstance(tensors, (list, tuple)) or not isinstance(result, torch.Tensor):
            return result
        with no_torch_function():
            found = [_pieces.get(tensor, (None, 0)) for tensor in tensors if isinstance(tensor, torch.Tensor)]
        gather = found[0][0] if found else None
        if gather is None or any(one is not gather for one, _ in found):
            return result
        with no_torch_function():
            if result.ndim != tensors[0].ndim:
                return result  # each piece has become an entry of a list
        ranks = [rank for _, rank in found]
        along = _dim_of(func, dim, result.ndim)
        if along != gather.dim or ranks != list(range(gather.count)):
            located = LocatedCall("cat", [("tensors", tensors[0])])
            report(session, located, _misplaced(gather, along, ranks), gather.axis)
            set_tag(result, Tag(UNKNOWN_TYPE))
        return result

    return handle


def _packed(func: object, tensors: object, dim: Any) -> TensorType | None:
    """The type of what a rank has packed for an exchange: all pieces of a shard, behind one another along the dim that
    is sharded. It varies, and nobody but the exchange takes it. None for anything else."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) < 2 or dim.__class__ is not int:
        return None
    if not is_whole_cut(tensors):
        return None
    type = type_of(tensors[0])
    entry = () if type.spec is None else entry_axes(type.spec[_dim_of(func, dim, len(type.spec))])
    if not entry or any(type_of(tensor) is not type for tensor in tensors) or type.spec is None:
        return None
    return type.with_spec(type.spec.without(set(entry)))


def _dim_of(func: object, dim: int, ndim: int) -> int:
    """The dim that the call joins along; the forms that take none have their own."""
    own = OWN_DIMS.get(getattr(func, "__name__", ""))
    if own is not None:
        return min(own, ndim - 1)
    return dim + ndim if dim < 0 else dim


def _misplaced(gather: GatheredList, along: int, ranks: Sequence[int]) -> Diagnosis:
    over = axis_text(gather.axis)
    if along != gather.dim:
        return Diagnosis(
            "SW223",
            f"cat joins along dim {along} what all_gather has gathered over {over} of pieces along dim {gather.dim}",
            (f"the whole tensor has the pieces of its {gather.count} ranks side by side along dim {gather.dim}",),
            (f"torch.cat(pieces, dim={gather.dim})",),
        )
    return Diagnosis(
        "SW223",
        f"cat joins the pieces that all_gather has gathered over {over} of the ranks {', '.join(map(str, ranks))}",
        (f"the whole tensor has the pieces of the ranks 0 to {gather.count - 1} in that order along dim {gather.dim}",),
        (f"torch.cat(pieces, dim={gather.dim}) of the list as all_gather fills it",),
    )
