"""Every raw and functional collective of torch, in every form, with what it computes from the ranks' tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as differentiable
from torch import Tensor

REDUCE_OPS: dict[str, Any] = {
    name: getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT", "BAND", "BOR", "BXOR")
}
"""Those that ranks in one process know; ``PREMUL_SUM`` is NCCL's alone."""
BITWISE = ("BAND", "BOR", "BXOR")

_REDUCED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
    "PRODUCT": torch.mul,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}

Call = Callable[[Tensor, str, int, Any], Tensor]
"""From this rank's tensor, the name of a reduction, the number of ranks and the group to this rank's result."""


@dataclass(frozen=True)
class Form:
    """One way to call one collective.

    ``moves``     what it computes: a key of ``MOVES``.
    ``function``  the function of torch that it is a form of.
    """

    name: str
    function: Any
    moves: str
    call: Call

    def __str__(self) -> str:
        return self.name

    @property
    def reductions(self) -> Sequence[str]:
        """The reductions to call it with; one empty name if it makes none."""
        return tuple(REDUCE_OPS) if self.moves in ("all_reduce", "reduce", "reduce_scatter") else ("",)


def reduced(op: str, parts: Sequence[Tensor]) -> Tensor:
    """The reduction ``op`` of tensors, on one device."""
    total = functools.reduce(_REDUCED[op], parts)
    return total / len(parts) if op == "AVG" else total


def _exchanged(xs: Sequence[Tensor]) -> list[Tensor]:
    return [torch.cat([x.chunk(len(xs))[rank] for x in xs]) for rank in range(len(xs))]


MOVES: dict[str, Callable[[Sequence[Tensor], str], list[Tensor]]] = {
    "all_reduce": lambda xs, op: [reduced(op, xs)] * len(xs),
    "reduce": lambda xs, op: [reduced(op, xs), *xs[1:]],
    "reduce_scatter": lambda xs, op: list(reduced(op, xs).chunk(len(xs))),
    "all_gather": lambda xs, op: [torch.cat(list(xs))] * len(xs),
    "gather": lambda xs, op: [torch.cat(list(xs)), *[torch.zeros_like(torch.cat(list(xs)))] * (len(xs) - 1)],
    "scatter": lambda xs, op: list(xs[0].chunk(len(xs))),
    "broadcast": lambda xs, op: [xs[0]] * len(xs),
    "all_to_all": lambda xs, op: _exchanged(xs),
    "permute": lambda xs, op: [xs[-1], *xs[:-1]],
}
"""What every rank has afterwards; rank 0 is the root, and a permutation hands on to the next rank."""


def _op(name: str) -> Any:
    return REDUCE_OPS[name]


def _whole(x: Tensor, n: int) -> Tensor:
    return x.new_empty(n * x.shape[0], *x.shape[1:])


def _part(x: Tensor, n: int) -> Tensor:
    return x.new_empty(x.shape[0] // n, *x.shape[1:])


def _pieces(x: Tensor, n: int) -> list[Tensor]:
    return [piece.contiguous() for piece in x.chunk(n)]


def _rows(x: Tensor, n: int) -> list[int]:
    return [x.shape[0] // n] * n


def _in_place(call: Callable[..., Any]) -> Call:
    """A form that changes its operand: a copy of ours."""

    def form(x: Tensor, op: str, n: int, group: Any) -> Tensor:
        y = x.clone()
        call(y, op, n, group)
        return y

    return form


def _into(buffer: Callable[[Tensor, int], Tensor], call: Callable[..., Any]) -> Call:
    """A form that fills a buffer."""

    def form(x: Tensor, op: str, n: int, group: Any) -> Tensor:
        out = buffer(x, n)
        call(out, x, op, n, group)
        return out

    return form


def _like(x: Tensor, n: int) -> Tensor:
    return torch.empty_like(x)


def _gathered(call: Callable[..., Any]) -> Call:
    """A form that fills a list."""

    def form(x: Tensor, op: str, n: int, group: Any) -> Tensor:
        pieces = [torch.empty_like(x) for _ in range(n)]
        call(pieces, x, n, group)
        return torch.cat(pieces)

    return form


def _exchanging_lists(x: Tensor, op: str, n: int, group: Any) -> Tensor:
    received = [torch.empty_like(piece) for piece in _pieces(x, n)]
    dist.all_to_all(received, _pieces(x, n), group=group)
    return torch.cat(received)


def _to_the_first(x: Tensor, op: str, n: int, group: Any) -> Tensor:
    first = dist.get_rank(group) == 0
    pieces = [torch.zeros_like(x) for _ in range(n)]
    dist.gather(x, pieces if first else None, dst=0, group=group)
    return torch.cat(pieces)


def _from_the_first(x: Tensor, op: str, n: int, group: Any) -> Tensor:
    out = _part(x, n)
    dist.scatter(out, _pieces(x, n) if dist.get_rank(group) == 0 else None, src=0, group=group)
    return out


def _coalesced(x: Tensor, op: str, n: int, group: Any) -> Tensor:
    y, other = x.clone(), x.clone()
    with dist._coalescing_manager(group=group):
        dist.all_reduce(y, _op(op), group=group)
        dist.all_reduce(other, _op(op), group=group)
    return y


def _coalesced_handles(x: Tensor, op: str, n: int, group: Any) -> Tensor:
    out, other = _part(x, n), _part(x, n)
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        dist.reduce_scatter_tensor(out, x, _op(op), group=group)
        dist.reduce_scatter_tensor(other, x, _op(op), group=group)
    manager.wait()
    return out


def _future(x: Tensor, op: str, n: int, group: Any) -> Tensor:
    y = x.clone()
    dist.all_reduce(y, _op(op), group=group, async_op=True).get_future().wait()
    return y


def _next(n: int) -> list[int]:
    return [(rank + 1) % n for rank in range(n)]


# fmt: off
FORMS: tuple[Form, ...] = (
    Form("all_reduce", dist.all_reduce, "all_reduce",
         _in_place(lambda y, op, n, group: dist.all_reduce(y, _op(op), group=group))),
    Form("all_reduce, by position", dist.all_reduce, "all_reduce",
         _in_place(lambda y, op, n, group: dist.all_reduce(y, _op(op), group, False))),
    Form("all_reduce, waited for", dist.all_reduce, "all_reduce",
         _in_place(lambda y, op, n, group: dist.all_reduce(y, _op(op), group=group, async_op=True).wait())),
    Form("all_reduce, its future", dist.all_reduce, "all_reduce", _future),
    Form("all_reduce, coalesced", dist.all_reduce, "all_reduce", _coalesced),
    Form("all_reduce_coalesced", dist.all_reduce_coalesced, "all_reduce",
         _in_place(lambda y, op, n, group: dist.all_reduce_coalesced([y], _op(op), group=group))),
    Form("reduce", dist.reduce, "reduce", _in_place(lambda y, op, n, group: dist.reduce(y, 0, _op(op), group=group))),
    Form("reduce, waited for", dist.reduce, "reduce",
         _in_place(lambda y, op, n, group: dist.reduce(y, 0, _op(op), group=group, async_op=True).wait())),
    Form("reduce_scatter", dist.reduce_scatter, "reduce_scatter",
         _into(_part, lambda out, x, op, n, group: dist.reduce_scatter(out, _pieces(x, n), _op(op), group=group))),
    Form("reduce_scatter_tensor", dist.reduce_scatter_tensor, "reduce_scatter",
         _into(_part, lambda out, x, op, n, group: dist.reduce_scatter_tensor(out, x, _op(op), group=group))),
    Form("reduce_scatter_tensor, waited for", dist.reduce_scatter_tensor, "reduce_scatter",
         _into(_part, lambda out, x, op, n, group:
               dist.reduce_scatter_tensor(out, x, _op(op), group=group, async_op=True).wait())),
    Form("reduce_scatter_tensor, coalesced", dist.reduce_scatter_tensor, "reduce_scatter", _coalesced_handles),

    Form("all_gather", dist.all_gather, "all_gather",
         _gathered(lambda pieces, x, n, group: dist.all_gather(pieces, x, group=group))),
    Form("all_gather, waited for", dist.all_gather, "all_gather",
         _gathered(lambda pieces, x, n, group: dist.all_gather(pieces, x, group=group, async_op=True).wait())),
    Form("all_gather_coalesced", dist.all_gather_coalesced, "all_gather",
         _gathered(lambda pieces, x, n, group:
                   dist.all_gather_coalesced([[piece] for piece in pieces], [x], group=group))),
    Form("all_gather_into_tensor", dist.all_gather_into_tensor, "all_gather",
         _into(_whole, lambda out, x, op, n, group: dist.all_gather_into_tensor(out, x, group=group))),
    Form("gather", dist.gather, "gather", _to_the_first),
    Form("scatter", dist.scatter, "scatter", _from_the_first),
    Form("broadcast", dist.broadcast, "broadcast",
         _in_place(lambda y, op, n, group: dist.broadcast(y, 0, group=group))),
    Form("all_to_all", dist.all_to_all, "all_to_all", _exchanging_lists),
    Form("all_to_all_single", dist.all_to_all_single, "all_to_all",
         _into(_like, lambda out, x, op, n, group: dist.all_to_all_single(out, x, group=group))),
    Form("all_to_all_single, with sizes", dist.all_to_all_single, "all_to_all",
         _into(_like, lambda out, x, op, n, group:
               dist.all_to_all_single(out, x, _rows(x, n), _rows(x, n), group=group))),

    Form("functional all_reduce", funcol.all_reduce, "all_reduce",
         lambda x, op, n, group: funcol.all_reduce(x, op.lower(), group)),
    Form("functional all_reduce_coalesced", funcol.all_reduce_coalesced, "all_reduce",
         lambda x, op, n, group: funcol.all_reduce_coalesced([x], op.lower(), group)[0]),
    Form("functional all_reduce_inplace", funcol.all_reduce_inplace, "all_reduce",
         _in_place(lambda y, op, n, group: funcol.all_reduce_inplace(y, op.lower(), group))),
    Form("functional reduce_scatter_tensor", funcol.reduce_scatter_tensor, "reduce_scatter",
         lambda x, op, n, group: funcol.reduce_scatter_tensor(x, op.lower(), 0, group)),
    Form("functional reduce_scatter_tensor_autograd", funcol.reduce_scatter_tensor_autograd, "reduce_scatter",
         lambda x, op, n, group: funcol.reduce_scatter_tensor_autograd(x, op.lower(), 0, group)),
    Form("functional reduce_scatter_tensor_coalesced", funcol.reduce_scatter_tensor_coalesced, "reduce_scatter",
         lambda x, op, n, group: funcol.reduce_scatter_tensor_coalesced([x], op.lower(), [0], group)[0]),
    Form("functional reduce_scatter_tensor_inplace", funcol.reduce_scatter_tensor_inplace, "reduce_scatter",
         _into(_part, lambda out, x, op, n, group:
               funcol.reduce_scatter_tensor_inplace(out, x, op.lower(), group))),
    Form("functional all_gather_tensor", funcol.all_gather_tensor, "all_gather",
         lambda x, op, n, group: funcol.all_gather_tensor(x, 0, group)),
    Form("functional all_gather_tensor_autograd", funcol.all_gather_tensor_autograd, "all_gather",
         lambda x, op, n, group: funcol.all_gather_tensor_autograd(x, 0, group)),
    Form("functional all_gather_into_tensor_coalesced", funcol.all_gather_into_tensor_coalesced, "all_gather",
         lambda x, op, n, group: funcol.all_gather_into_tensor_coalesced([x], group)[0]),
    Form("functional all_gather_tensor_inplace", funcol.all_gather_tensor_inplace, "all_gather",
         _into(_whole, lambda out, x, op, n, group: funcol.all_gather_tensor_inplace(out, x, group))),
    Form("functional all_gather_inplace", funcol.all_gather_inplace, "all_gather",
         _gathered(lambda pieces, x, n, group: funcol.all_gather_inplace(pieces, x, group))),
    Form("functional broadcast", funcol.broadcast, "broadcast",
         lambda x, op, n, group: funcol.broadcast(x, 0, group)),
    Form("functional all_to_all_single", funcol.all_to_all_single, "all_to_all",
         lambda x, op, n, group: funcol.all_to_all_single(x, None, None, group)),
    Form("functional all_to_all_single_autograd", funcol.all_to_all_single_autograd, "all_to_all",
         lambda x, op, n, group: funcol.all_to_all_single_autograd(x, _rows(x, n), _rows(x, n), group)),
    Form("functional all_to_all_inplace", funcol.all_to_all_inplace, "all_to_all",
         _into(_like, lambda out, x, op, n, group: funcol.all_to_all_inplace(out, x, None, None, group))),
    Form("functional permute_tensor", funcol.permute_tensor, "permute",
         lambda x, op, n, group: funcol.permute_tensor(x, _next(n), group)),

    Form("differentiable all_reduce", differentiable.all_reduce, "all_reduce",
         lambda x, op, n, group: differentiable.all_reduce(x, _op(op), group)),
    Form("differentiable reduce", differentiable.reduce, "reduce",
         lambda x, op, n, group: differentiable.reduce(x, 0, _op(op), group)),
    Form("differentiable reduce_scatter", differentiable.reduce_scatter, "reduce_scatter",
         lambda x, op, n, group: differentiable.reduce_scatter(_part(x, n), _pieces(x, n), _op(op), group)),
    Form("differentiable all_gather", differentiable.all_gather, "all_gather",
         lambda x, op, n, group: torch.cat(differentiable.all_gather(x, group))),
    Form("differentiable gather", differentiable.gather, "gather",
         lambda x, op, n, group: torch.cat(differentiable.gather(x, 0, group))),
    Form("differentiable scatter", differentiable.scatter, "scatter",
         lambda x, op, n, group: differentiable.scatter(_pieces(x, n), 0, group)),
    Form("differentiable broadcast", differentiable.broadcast, "broadcast",
         lambda x, op, n, group: differentiable.broadcast(x.clone(), 0, group)),
    Form("differentiable all_to_all", differentiable.all_to_all, "all_to_all",
         lambda x, op, n, group:
         torch.cat(differentiable.all_to_all([torch.empty_like(one) for one in _pieces(x, n)], _pieces(x, n), group))),
    Form("differentiable all_to_all_single", differentiable.all_to_all_single, "all_to_all",
         lambda x, op, n, group: differentiable.all_to_all_single(torch.empty_like(x), x, group=group)),
)
# fmt: on
