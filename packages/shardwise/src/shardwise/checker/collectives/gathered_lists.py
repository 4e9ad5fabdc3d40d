"""Pieces that a raw ``all_gather`` has put into a list: whoever joins them does it in their order, along their dim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import I
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

from ..operators.listed_pieces import ListedPiece, PieceList, are_any, dim_cut_over, memory_of, note_piece, piece_of
from ..operators.ordinary import Handler
from ..parts.own_parts import pieces_of_cut
from ..state.session import CheckSession
from .raw_pieces import Exchange, sent_cut

OWN_DIMS = {"hstack": 1, "column_stack": 1, "vstack": 0, "row_stack": 0, "dstack": 2}
"""The functions that join along a dim of their own; tensors of one dim are joined along it."""


def note_gathered(
    session: CheckSession, exchange: Exchange, sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor]
) -> None:
    """``received`` are the pieces of all ranks of the axis, in the order of the ranks. Errors: SW223.

    Each is what its rank has sent; of an exchange whose pieces are cut along another dim, this rank's part of that.
    Local types do not say which dim is cut, and what all ranks have joined is equal whichever it is.
    """
    type, axis = type_of(sent[0]), exchange.axis
    whole = exchange.row.name == "all_gather"
    dim = dim_cut_over(type, parts_of(axis, type))
    if session.local:
        dim = 0 if whole and any(map(type.is_varying, parts_of(axis, type))) else None
    if dim is None or len(received) != axis.size():
        return
    if not whole and exchange.cut in (None, dim):
        return
    own = memory_of(sent[0]) if whole else None
    source = PieceList(exchange.name, axis, len(received), exchange.rank, own)
    if not session.local:
        _check_filled(session, source, dim, received)
    for rank, piece in enumerate(received):
        note_piece(session, piece, ListedPiece(source, rank, dim))


def check_scattered(session: CheckSession, exchange: Exchange, given: Mapping[str, object]) -> None:
    """Report a reduction that hands every rank the piece of another one: its pieces are those of one tensor, in another
    order. Errors: SW223."""
    found = sent_cut(exchange.row, given)
    if found is None or exchange.reducer is None or found[0].dim is None:
        return
    cut, numbers = found
    if numbers == sorted(numbers) or cut.count != exchange.axis.size():
        return
    located = LocatedCall(exchange.name, [("input", tensors_in(given[exchange.row.sent])[0])])
    said = Diagnosis(
        "SW223",
        f"{exchange.name} gives the ranks of {axis_text(exchange.axis)} the pieces {', '.join(map(str, numbers))}",
        (f"rank by rank, of a tensor that is cut along dim {cut.dim} into {cut.count} pieces",),
        (f"hand over the pieces in the order in which chunk(..., dim={cut.dim}) gives them",),
    )
    report(session, located, said, exchange.axis)


def _check_filled(session: CheckSession, source: PieceList, dim: int, received: Sequence[torch.Tensor]) -> None:
    """Report pieces that are received into the parts of one tensor, in another order or along another dim."""
    found = pieces_of_cut(received)
    if found is None or found[0].dim is None:
        return
    cut, numbers = found
    if cut.dim != dim or numbers != sorted(numbers):
        located = LocatedCall(source.op, [("received", received[0])])
        remedy = f"receive into the pieces of a new tensor that is cut along dim {dim}, in their order"
        said = _misplaced(source, f"{source.op} writes", cut.dim or 0, dim, numbers, remedy)
        report(session, located, said, source.axis)


def joining_pieces(usual: Handler) -> Handler:
    """The handler of a concatenation, which looks at where its pieces come from. Errors: SW223."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        given: Any = dict(zip(("tensors", "dim"), args, strict=False)) | dict(kwargs)
        tensors, dim = given.get("tensors"), given.get("dim", 0)
        known = None if session.local else _packed(func, tensors, dim)
        if known is None and are_any():
            known = _with_own(func, tensors, dim, anywhere=session.local)
        if known is not None:
            made: Any = func(*args, **kwargs)
            set_tag(made, Tag(known, None if (tag := tag_of(tensors[0])) is None else tag.origin))
            return made
        result = usual(session, func, args, kwargs)
        if session.local or not isinstance(tensors, (list, tuple)) or not isinstance(result, torch.Tensor):
            return result
        found = [piece_of(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]
        first = found[0] if found else None
        with no_torch_function():
            if first is None or result.ndim != tensors[0].ndim:
                return result  # each piece has become an entry of a list
        if any(one is None or (one.source, one.computed) != (first.source, first.computed) for one in found):
            return result
        numbers, wanted = [one.number for one in found if one is not None], list(range(first.source.count))
        if first.computed and sorted(numbers) != wanted:
            return result  # what is computed of some pieces may be anything
        along = _dim_of(func, dim, result.ndim)
        if along != first.dim or numbers != wanted:
            located = LocatedCall("cat", [("tensors", tensors[0])])
            remedy = f"torch.cat(pieces, dim={first.dim}), of the list as {first.source.op} fills it"
            said = _misplaced(first.source, "cat joins", along, first.dim, numbers, remedy)
            report(session, located, said, first.source.axis)
            set_tag(result, Tag(UNKNOWN_TYPE))
        return result

    return handle


def _with_own(func: object, tensors: object, dim: object, *, anywhere: bool) -> TensorType | None:
    """The type of all gathered pieces in their order, in which the program has put its own piece back.

    So gradients reach the own piece, and no others: each rank computes the same of the result.
    ``anywhere``  along whichever dim they are joined.
    """
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(x, torch.Tensor) for x in tensors):
        return None
    found = [piece_of(x) for x in tensors]
    missing = [at for at, piece in enumerate(found) if piece is None]
    known = next((piece for piece in found if piece is not None), None)
    if len(missing) != 1 or known is None or known.computed or not isinstance(dim, int):
        return None
    (at,), source = missing, known.source
    if at != source.own or memory_of(tensors[at]) != source.sent or len(found) != source.count:
        return None
    if any(piece is not None and (piece.source is not source or piece.number != n) for n, piece in enumerate(found)):
        return None
    type, ndim = type_of(tensors[at - 1]), len(source.sent[1]) if source.sent else 0
    if not anywhere and _dim_of(func, dim, ndim) != known.dim:
        return None
    return type.with_placements(dict.fromkeys(parts_of(source.axis, type), I)) if tensors[at].requires_grad else type


def _packed(func: object, tensors: object, dim: object) -> TensorType | None:
    """The type of what a rank has packed for an exchange: all pieces of a shard, behind one another along the dim that
    is sharded. It varies, and nobody but the exchange takes it. None for anything else."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) < 2 or not isinstance(dim, int):
        return None
    cut = pieces_of_cut(tensors)
    if cut is None or cut[1] != sorted(cut[1]):
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


def _misplaced(source: PieceList, verb: str, along: int, dim: int, numbers: Sequence[int], remedy: str) -> Diagnosis:
    """``verb``  what puts the pieces ``numbers`` together along the dim ``along``; they are pieces along ``dim``."""
    over, op = axis_text(source.axis), source.op
    if along != dim:
        return Diagnosis(
            "SW223",
            f"{verb} along dim {along} what {op} has brought over {over}, pieces along dim {dim}",
            (f"the whole has the pieces of its {source.count} ranks side by side along dim {dim}",),
            (remedy,),
        )
    return Diagnosis(
        "SW223",
        f"{verb} the pieces that {op} has brought over {over} from the ranks {', '.join(map(str, numbers))}",
        (f"the whole has the pieces of the ranks 0 to {source.count - 1} in that order along dim {dim}",),
        (remedy,),
    )
