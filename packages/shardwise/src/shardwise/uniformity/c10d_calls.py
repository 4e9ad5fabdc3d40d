"""Which collective is an operator of ``torch.ops.c10d``, and what does it send to whom? One entry per operator.

A reading lists the tensors that go to each member of the group and those that come from each, as flat views where one
tensor holds the pieces of all. Names of the arguments are those of the operators' schemas (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Pieces = Sequence[Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Reading:
    """A collective as issued by this rank.

    ``given``     the tensors handed in, as a person would name them.
    ``sent``      for each member the tensors it gets from here; ``received``: those that hold what comes from it.
    ``reduced``   for a reduction, the tensors that hold the result, in place of ``received``.
    ``comes``     for a reduction, the number of elements that each member contributes.
    ``root``      position of the root in the group; ``peer``: of the other rank of a message.
    """

    kind: str
    given: Sequence[torch.Tensor] = ()
    sent: Pieces | None = None
    received: Pieces | None = None
    reduced: Sequence[torch.Tensor] | None = None
    root: int | None = None
    peer: int | None = None
    tag: int = 0


Args = Mapping[str, Any]
Reader = Callable[[Args, int, int], Reading]
"""Takes the operator's arguments by name, the size of the group, and this rank's position in it."""


def reader_of(namespace: str, name: str) -> Reader | None:
    """The reader of an operator; None if it does not communicate."""
    return _READERS.get(namespace, {}).get(name)


def pieces_of(tensor: torch.Tensor, sizes: Sequence[int]) -> list[list[torch.Tensor]]:
    """``tensor`` cut into flat pieces of these numbers of elements."""
    flat = tensor.detach().reshape(-1)
    return (
        [[piece] for piece in torch.split(flat, list(sizes))] if sum(sizes) == flat.numel() else [[flat]] * len(sizes)
    )


def _even(tensors: Sequence[torch.Tensor], size: int) -> list[list[torch.Tensor]]:
    """For each member its share of every tensor, all shares being equal."""
    cut = [pieces_of(tensor, [tensor.numel() // size] * size) for tensor in tensors]
    return [[pieces[member][0] for pieces in cut] for member in range(size)]


def _to_all(tensors: Sequence[torch.Tensor], size: int) -> list[Sequence[torch.Tensor]]:
    return [tensors] * size


def _only(tensors: Sequence[torch.Tensor], size: int, who: int) -> list[Sequence[torch.Tensor]]:
    return [tensors if member == who else () for member in range(size)]


def _list(value: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _all_reduce(given: str) -> Reader:
    def reader(args: Args, size: int, me: int) -> Reading:
        tensors = _list(args[given])
        return Reading("all_reduce", tensors, _to_all(tensors, size), reduced=_list(args.get("result", tensors)))

    return reader


def _all_gather(given: str, result: str) -> Reader:
    """Each result holds the pieces of all, one after the other."""

    def reader(args: Args, size: int, me: int) -> Reading:
        tensors = _list(args[given])
        return Reading("all_gather", tensors, _to_all(tensors, size), _even(_list(args[result]), size))

    return reader


def _all_gather_lists(given: str, result: str) -> Reader:
    """Each result is a list with one tensor per member."""

    def reader(args: Args, size: int, me: int) -> Reading:
        received = [[tensors[member] for tensors in args[result]] for member in range(size)]
        return Reading("all_gather", args[given], _to_all(args[given], size), received)

    return reader


def _reduce_scatter(given: str, result: str) -> Reader:
    def reader(args: Args, size: int, me: int) -> Reading:
        tensors = _list(args[given])
        return Reading("reduce_scatter", tensors, _even(tensors, size), reduced=_list(args[result]))

    return reader


def _reduce_scatter_lists(args: Args, size: int, me: int) -> Reading:
    sent = [[tensors[member] for tensors in args["input_tensors"]] for member in range(size)]
    return Reading("reduce_scatter", args["input_tensors"][0], sent, reduced=args["output_tensors"])


def _all_to_all(given: str, result: str) -> Reader:
    def reader(args: Args, size: int, me: int) -> Reading:
        tensor, out = args[given], args[result]
        sent, received = (
            pieces_of(one, _split_sizes(one, args[splits], size))
            for one, splits in ((tensor, "input_split_sizes"), (out, "output_split_sizes"))
        )
        return Reading("all_to_all", [tensor], sent, received)

    return reader


def _split_sizes(tensor: torch.Tensor, splits: Sequence[int], size: int) -> list[int]:
    """Elements per member, from rows per member."""
    if not splits:
        return [tensor.numel() // size] * size
    row = tensor.numel() // tensor.shape[0] if tensor.ndim and tensor.shape[0] else 0
    return [int(rows) * row for rows in splits]


def _all_to_all_lists(args: Args, size: int, me: int) -> Reading:
    sent, received = ([[tensor] for tensor in args[name]] for name in ("input_tensors", "output_tensors"))
    return Reading("all_to_all", args["input_tensors"], sent, received)


def _broadcast(given: str, root_name: str) -> Reader:
    def reader(args: Args, size: int, me: int) -> Reading:
        tensors, root = _list(args[given]), int(args[root_name])
        sent: Pieces = _to_all(tensors, size) if me == root else [()] * size
        return Reading("broadcast", tensors, sent, _only(_list(args.get("result", tensors)), size, root), root=root)

    return reader


def _reduce(args: Args, size: int, me: int) -> Reading:
    tensors, root = args["tensors"], int(args["root_rank"])
    reduced = tensors if me == root else None
    return Reading("reduce", tensors, _only(tensors, size, root), reduced=reduced, root=root)


def _gather(args: Args, size: int, me: int) -> Reading:
    tensors, root = args["input_tensors"], int(args["root_rank"])
    received: Pieces = [[one] for one in args["output_tensors"][0]] if me == root else [()] * size
    return Reading("gather", tensors, _only(tensors, size, root), received, root=root)


def _scatter(args: Args, size: int, me: int) -> Reading:
    tensors, root = args["output_tensors"], int(args["root_rank"])
    sent: Pieces = [[one] for one in args["input_tensors"][0]] if me == root else [()] * size
    return Reading("scatter", tensors, sent, _only(tensors, size, root), root=root)


def _barrier(args: Args, size: int, me: int) -> Reading:
    return Reading("barrier")


def _send(args: Args, size: int, me: int) -> Reading:
    dst = int(args["dst"])
    return Reading("send", args["tensors"], _only(args["tensors"], size, dst), peer=dst, tag=int(args["tag"]))


def _recv(args: Args, size: int, me: int) -> Reading:
    src = args.get("src")
    received = None if src is None else _only(args["tensors"], size, int(src))
    peer = None if src is None else int(src)
    return Reading("recv", args["tensors"], received=received, peer=peer, tag=int(args["tag"]))


_C10D: dict[str, Reader] = {
    "allreduce_": _all_reduce("tensors"),
    "allreduce_coalesced_": _all_reduce("tensors"),
    "allgather_": _all_gather_lists("input_tensors", "output_tensors"),
    "_allgather_base_": _all_gather("input_tensor", "output_tensor"),
    "allgather_coalesced_": _all_gather_lists("input_list", "output_lists"),
    "allgather_into_tensor_coalesced_": _all_gather("inputs", "outputs"),
    "reduce_scatter_": _reduce_scatter_lists,
    "_reduce_scatter_base_": _reduce_scatter("input_tensor", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": _reduce_scatter("inputs", "outputs"),
    "alltoall_": _all_to_all_lists,
    "alltoall_base_": _all_to_all("input", "output"),
    "broadcast_": _broadcast("tensors", "root_rank"),
    "reduce_": _reduce,
    "gather_": _gather,
    "scatter_": _scatter,
    "barrier": _barrier,
    "monitored_barrier_": _barrier,
    "send": _send,
    "recv_": _recv,
    "recv_any_source_": _recv,
}
_FUNCTIONAL: dict[str, Reader] = {
    "all_reduce": _all_reduce("input"),
    "all_reduce_": _all_reduce("input"),
    "all_reduce_coalesced": _all_reduce("inputs"),
    "all_reduce_coalesced_": _all_reduce("inputs"),
    "all_gather_into_tensor": _all_gather("input", "result"),
    "all_gather_into_tensor_out": _all_gather("input", "result"),
    "all_gather_into_tensor_coalesced": _all_gather("inputs", "result"),
    "reduce_scatter_tensor": _reduce_scatter("input", "result"),
    "reduce_scatter_tensor_out": _reduce_scatter("input", "result"),
    "reduce_scatter_tensor_coalesced": _reduce_scatter("inputs", "result"),
    "all_to_all_single": _all_to_all("input", "result"),
    "broadcast": _broadcast("input", "src"),
    "broadcast_": _broadcast("input", "src"),
}
_READERS = {"c10d": _C10D, "_c10d_functional": _FUNCTIONAL}
"""Functional operators return what they make: there ``result`` is one more argument."""
