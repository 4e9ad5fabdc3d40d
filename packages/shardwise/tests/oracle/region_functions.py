"""Autograd functions around collectives as programs write them, right ones and wrong ones, without a word of types.

Each is a factory of one class, which is given the process group. A case says what it is applied to: operands with the
placement that is meant along the axis, the placement of the result, and the function of the whole values that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Function

from shardwise import I, P, R, S, V


def size(group: Any = None) -> int:
    return dist.get_world_size(group)


def position(group: Any = None) -> int:
    return dist.get_rank(group)


def summed(x: Any, group: Any = None) -> Any:
    x = x.contiguous().clone()
    dist.all_reduce(x, group=group)
    return x


def gathered(x: Any, dim: int = 0, group: Any = None) -> Any:
    pieces = [torch.empty_like(x) for _ in range(size(group))]
    dist.all_gather(pieces, x.contiguous(), group=group)
    return torch.cat(pieces, dim)


def gathered_rows(x: Any, group: Any = None) -> Any:
    out = x.new_empty(size(group) * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def scattered(x: Any, group: Any = None) -> Any:
    out = x.new_empty(x.shape[0] // size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def own(x: Any, dim: int = 0, group: Any = None) -> Any:
    return x.chunk(size(group), dim)[position(group)].contiguous()


def exchanged(x: Any, cut: int, joined: int, group: Any = None) -> Any:
    given = [piece.contiguous() for piece in x.chunk(size(group), cut)]
    taken = [torch.empty_like(given[0]) for _ in given]
    dist.all_to_all(taken, given, group=group)
    return torch.cat(taken, joined)


Body = Callable[..., Any]


def region(forward_body: Body, backward_body: Body) -> Callable[[Any], type]:
    """A region function of one tensor: its bodies take a tensor and the group."""

    def make(group: Any) -> type:
        class Region(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return forward_body(x, group)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return backward_body(gradient, group)

        return Region

    return make


def keep(x: Any, group: Any = None) -> Any:
    return x.view_as(x)


# Megatron-LM's spelling: the group is an argument, kept on ctx; further arguments decide what backward does.


def megatron_copy(group: Any) -> type:
    class CopyToModelParallelRegion(Function):
        @staticmethod
        def symbolic(graph: Any, input_: Any, group: Any) -> Any:
            return input_

        @staticmethod
        def forward(ctx: Any, input_: Any, group: Any = group) -> Any:
            ctx.group = group
            return input_

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            return summed(grad_output, ctx.group), None

    return CopyToModelParallelRegion


def megatron_gather(with_grad: bool) -> Callable[[Any], type]:
    def make(group: Any) -> type:
        class GatherFromSequenceParallelRegion(Function):
            @staticmethod
            def forward(
                ctx: Any, input_: Any, tensor_parallel_output_grad: bool = with_grad, group: Any = group
            ) -> Any:
                ctx.tensor_parallel_output_grad = tensor_parallel_output_grad
                ctx.group = group
                return gathered_rows(input_, group)

            @staticmethod
            def backward(ctx: Any, grad_output: Any) -> Any:
                if ctx.tensor_parallel_output_grad:
                    return scattered(grad_output, ctx.group), None, None
                return own(grad_output, 0, ctx.group), None, None

        return GatherFromSequenceParallelRegion

    return make


def ulysses(group: Any, cut: int = 0, joined: int = 1, back: tuple[int, int] = (1, 0)) -> type:
    """DeepSpeed-Ulysses: heads are cut and the sequence is put together."""

    class SeqAllToAll(Function):
        @staticmethod
        def forward(ctx: Any, group: Any, x: Any, scatter_idx: int, gather_idx: int) -> Any:
            ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
            return exchanged(x, scatter_idx, gather_idx, group)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            cut, joined = (ctx.gather_idx, ctx.scatter_idx) if back == (1, 0) else back
            return None, exchanged(gradient, cut, joined, ctx.group), None, None

    return SeqAllToAll


def parallel_cross_entropy(mask: bool = True, divide: bool = False, shared_total: bool = True) -> Callable[[Any], type]:
    """Cross entropy of logits whose vocabulary is cut over the ranks; the mask of ids of other ranks in backward."""

    def make(group: Any) -> type:
        class VocabParallelCrossEntropy(Function):
            @staticmethod
            def forward(ctx: Any, logits: Any, target: Any) -> Any:
                largest = logits.max(-1).values
                dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
                logits = logits - largest[:, None]
                length = logits.shape[-1]
                start = position(group) * length
                outside = (target < start) | (target >= start + length)
                local = (target - start).masked_fill(outside, 0)
                rows = torch.arange(len(target))
                chosen = summed(logits[rows, local].masked_fill(outside, 0.0), group)
                exp = logits.exp()
                total = summed(exp.sum(-1), group)
                ctx.save_for_backward(exp / (total if shared_total else exp.sum(-1))[:, None], outside, local)
                return total.log() - chosen

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                softmax, outside, local = ctx.saved_tensors
                out = softmax.clone()
                out[torch.arange(len(local)), local] -= 1.0 - outside.to(out.dtype) if mask else 1.0
                out = out * gradient[:, None]
                return (out / size(group) if divide else out), None

        return VocabParallelCrossEntropy

    return make


def async_linear(
    reduce: bool = True, wait: bool = True, sequence: bool = False, late: bool = True
) -> Callable[[Any], type]:
    """Megatron's linear with the all-reduce of the input's gradient behind the product for the weight's."""

    def make(group: Any) -> type:
        class LinearWithAsyncCommunication(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
                ctx.save_for_backward(x, weight)
                total = gathered_rows(x, group) if sequence else x
                return total @ weight.t() + bias

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                x, weight = ctx.saved_tensors
                total = gathered_rows(x, group) if sequence else x
                grad_x = gradient @ weight
                handle = None
                if reduce and not sequence:
                    handle = dist.all_reduce(grad_x, group=group, async_op=True)
                elif sequence:
                    whole, grad_x = grad_x, torch.zeros_like(x)
                    if reduce:
                        handle = dist.reduce_scatter_tensor(grad_x, whole.contiguous(), group=group, async_op=True)
                    else:
                        grad_x = own(whole, 0, group)
                grad_weight = gradient.t() @ total
                if handle is not None and wait:
                    handle.wait()
                return grad_x, grad_weight, gradient.sum(0)

        return LinearWithAsyncCommunication

    return make


def row_linear(group: Any) -> type:
    class RowParallelLinear(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return summed(x @ weight.t(), group)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, weight = ctx.saved_tensors
            return gradient @ weight, gradient.t() @ x

    return RowParallelLinear


def simclr_gather(reduce: bool = True) -> Callable[[Any], type]:
    def make(group: Any) -> type:
        class GatherLayer(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                pieces = [torch.zeros_like(x) for _ in range(size(group))]
                dist.all_gather(pieces, x.contiguous(), group=group)
                return tuple(pieces)

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                every = torch.stack(gradients)
                if reduce:
                    dist.all_reduce(every, group=group)
                return every[position(group)]

        return GatherLayer

    return make


def stacked_gather(group: Any) -> type:
    class AllGatherGrad(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return torch.stack([*gathered(x[None], 0, group)])

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return summed(gradient, group)[position(group)]

    return AllGatherGrad


def with_setup(group: Any) -> type:
    class Reduce(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return summed(x, group)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.shape = output.shape

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient.expand(ctx.shape)

    return Reduce


class Plan:
    """An object that travels on ctx, as frameworks have them."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def reduce(self, x: Any) -> Any:
        return summed(x, self.group)


def with_plan(sums: bool = True) -> Callable[[Any], type]:
    def make(group: Any) -> type:
        plan = Plan(group)

        class Enter(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.plan = plan
                return plan.reduce(x) if sums else x.clone()

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return ctx.plan.reduce(gradient)

        return Enter

    return make


def ring_shift(step_back: int = -1) -> Callable[[Any], type]:
    def shifted(x: Any, step: int, group: Any) -> Any:
        ranks = dist.get_process_group_ranks(group)
        me, n = position(group), size(group)
        out = torch.empty_like(x)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, x.contiguous(), ranks[(me + step) % n], group),
                dist.P2POp(dist.irecv, out, ranks[(me - step) % n], group),
            ]
        )
        for work in works:
            work.wait()
        return out

    return region(lambda x, group: shifted(x, 1, group), lambda x, group: shifted(x, step_back, group))


def functional_reduce(group: Any) -> type:
    import torch.distributed._functional_collectives as functional

    class Reduce(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return functional.all_reduce(x, "sum", group) + 0

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    return Reduce


def in_place_reduce(group: Any) -> type:
    class Reduce(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            dist.all_reduce(x, group=group)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    return Reduce


def batch_statistics(reduce: bool = True) -> Callable[[Any], type]:
    """Normalised by the mean over all ranks' rows, as synchronised batch norm does."""

    def make(group: Any) -> type:
        class Centred(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.rows = x.shape[0] * size(group)
                return x - summed(x.sum(0), group) / ctx.rows

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                total = gradient.sum(0)
                return gradient - (summed(total, group) if reduce else total) / ctx.rows

        return Centred

    return make


@dataclass(frozen=True)
class Case:
    """One function with what it is applied to.

    ``operands``  the whole value's shape and the placement along the axis, for each floating-point operand.
    ``result``    the placement of every result.
    ``whole``     the function of the whole values.
    ``call``      the arguments of apply, from the operands and the group.
    """

    name: str
    make: Callable[[Any], type]
    operands: tuple[tuple[tuple[int, ...], Any], ...]
    result: Any
    whole: Callable[..., Any]
    call: Callable[[Sequence[Any], Any], Sequence[Any]] = lambda operands, group: operands


def same(x: Any) -> Any:
    return x


X = (8, 4)
TARGET = torch.tensor([0, 3, 5, 7, 2, 6])
LINEAR = (((8, 4), I), ((12, 4), S(0)), ((12,), S(0)))
LINEAR_SP = (((8, 4), S(0)), ((12, 4), S(0)), ((12,), S(0)))


def entropy(logits: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits, TARGET, reduction="none")


def linear(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight.t() + bias


def with_target(operands: Sequence[Any], group: Any) -> Sequence[Any]:
    return [*operands, TARGET]


def ulysses_call(operands: Sequence[Any], group: Any) -> Sequence[Any]:
    return [group, operands[0], 1, 0]


def swapped(x: Any) -> Any:
    """What an exchange of pieces of dim 0 makes of the whole, on four ranks."""
    return x.unflatten(0, (4, 4, -1)).transpose(0, 1).flatten(0, 2)


def rolled(x: Any) -> Any:
    """What a shift to the next of four ranks makes of the whole."""
    return x.roll(x.shape[0] // 4, 0)


def to_rows(x: Any, g: Any) -> Any:
    return exchanged(x, 1, 0, g)


RIGHT = [
    Case("copy", region(keep, summed), ((X, I),), R, same),
    Case("reduce", region(summed, keep), ((X, P),), I, same),
    Case("reduce both ways", region(summed, summed), ((X, P),), R, same),
    Case("gather last dim", region(lambda x, g: gathered(x, 1, g), lambda x, g: own(x, 1, g)), ((X, S(1)),), I, same),
    Case("scatter last dim", region(lambda x, g: own(x, 1, g), lambda x, g: gathered(x, 1, g)), ((X, I),), S(1), same),
    Case("scatter to sequence", region(lambda x, g: own(x, 0, g), gathered_rows), ((X, I),), S(0), same),
    Case("gather from sequence", region(gathered_rows, lambda x, g: own(x, 0, g)), ((X, S(0)),), I, same),
    Case("gather for tensor parallel", region(gathered_rows, scattered), ((X, S(0)),), R, same),
    Case("reduce-scatter", region(scattered, gathered_rows), ((X, P),), S(0), same),
    Case("all-to-all", region(to_rows, lambda x, g: exchanged(x, 0, 1, g)), ((X, S(0)),), S(1), same),
    Case("megatron copy", megatron_copy, ((X, I),), R, same),
    Case("megatron gather, sequence parallel", megatron_gather(True), ((X, S(0)),), R, same),
    Case("megatron gather, whole gradient", megatron_gather(False), ((X, S(0)),), I, same),
    Case("ulysses", ulysses, ((X, S(0)),), S(1), same, ulysses_call),
    Case("vocabulary-parallel cross entropy", parallel_cross_entropy(), (((6, 8), S(1)),), I, entropy, with_target),
    Case("async linear", async_linear(), LINEAR, S(1), linear),
    Case("async linear, sequence parallel", async_linear(sequence=True), LINEAR_SP, S(1), linear),
    Case("row linear", row_linear, (((8, 4), S(1)), ((12, 4), S(1))), I, lambda x, w: x @ w.t()),
    Case("simclr gather", simclr_gather(), (((4,), V),), R, lambda *x: x),
    Case("simclr gather, one loss", simclr_gather(False), (((4,), V),), I, lambda *x: x),
    Case("stacked gather", stacked_gather, (((4,), V),), R, lambda *x: torch.stack(x)),
    Case("setup_context", with_setup, ((X, P),), I, same),
    Case("group on an object", with_plan(), ((X, P),), R, same),
    Case("group on an object, copy", with_plan(False), ((X, I),), R, same),
    Case("ring shift", ring_shift(), ((X, S(0)),), S(0), rolled),
    Case("functional", functional_reduce, ((X, P),), I, same),
    Case("in place", in_place_reduce, ((X, P),), I, same),
    Case("batch statistics", batch_statistics(), ((X, S(0)),), S(0), lambda x: x - x.mean(0)),
]
"""Functions whose backward is the partner of their forward."""

WRONG = [
    Case("copy with a maximum", region(keep, lambda x, g: most(x, g)), ((X, I),), R, same),
    Case("copy, summed twice", region(keep, lambda x, g: summed(summed(x, g), g)), ((X, I),), R, same),
    Case("copy, divided by n", region(keep, lambda x, g: summed(x, g) / size(g) ** 2), ((X, I),), R, same),
    Case("reduce, divided by n", region(summed, lambda x, g: x / size(g)), ((X, P),), I, same),
    Case("reduce, times n", region(summed, lambda x, g: x * size(g)), ((X, P),), I, same),
    Case("reduce, sign", region(summed, lambda x, g: -x), ((X, P),), I, same),
    Case("mean with the gradient of a sum twice", region(summed, lambda x, g: 2 * summed(x, g)), ((X, P),), R, same),
    Case("gather, first piece", region(gathered_rows, lambda x, g: x.chunk(size(g))[0]), ((X, S(0)),), I, same),
    Case("gather, next rank's piece", region(gathered_rows, lambda x, g: neighbour(x, g)), ((X, S(0)),), I, same),
    Case(
        "gather, other dim",
        region(lambda x, g: gathered(x, 1, g), lambda x, g: own_reshaped(x, g)),
        ((X, S(1)),),
        I,
        same,
    ),
    Case(
        "gather, average of pieces",
        region(gathered_rows, lambda x, g: sum(x.chunk(size(g))) / size(g)),
        ((X, S(0)),),
        I,
        same,
    ),
    Case(
        "gather, reduced without scatter",
        region(gathered_rows, lambda x, g: summed(x, g)[: x.shape[0] // size(g)]),
        ((X, S(0)),),
        R,
        same,
    ),
    Case(
        "scatter, gradient repeated",
        region(lambda x, g: own(x, 0, g), lambda x, g: x.repeat(size(g), 1)),
        ((X, I),),
        S(0),
        same,
    ),
    Case(
        "scatter, pieces in reverse",
        region(lambda x, g: own(x, 0, g), lambda x, g: reversed_rows(x, g)),
        ((X, I),),
        S(0),
        same,
    ),
    Case(
        "scatter, sum in place of gather",
        region(lambda x, g: own(x, 0, g), lambda x, g: summed(x, g).repeat(size(g), 1)),
        ((X, I),),
        S(0),
        same,
    ),
    Case(
        "reduce-scatter, own gradient repeated",
        region(scattered, lambda x, g: x.repeat(size(g), 1)),
        ((X, P),),
        S(0),
        same,
    ),
    Case("reduce-scatter, padded", region(scattered, lambda x, g: padded(x, g)), ((X, P),), S(0), same),
    Case(
        "all-to-all, pieces in reverse",
        region(lambda x, g: exchanged(x, 0, 0, g), lambda x, g: reversed_pieces(x, g)),
        (((32, 4), S(0)),),
        S(0),
        swapped,
    ),
    Case("ulysses, dims swapped", lambda g: ulysses(g, back=(0, 0)), (((8, 8), S(0)),), S(1), same, ulysses_call),
    Case(
        "cross entropy without the mask", parallel_cross_entropy(mask=False), (((6, 8), S(1)),), I, entropy, with_target
    ),
    Case("cross entropy divided by n", parallel_cross_entropy(divide=True), (((6, 8), S(1)),), I, entropy, with_target),
    Case(
        "cross entropy with a local softmax",
        parallel_cross_entropy(shared_total=False),
        (((6, 8), S(1)),),
        I,
        entropy,
        with_target,
    ),
    Case("async linear, never waited", async_linear(wait=False), LINEAR, S(1), linear),
    Case(
        "async linear, sequence parallel, never waited",
        async_linear(wait=False, sequence=True),
        LINEAR_SP,
        S(1),
        linear,
    ),
    Case("async linear, gradient not reduced", async_linear(reduce=False, sequence=True), LINEAR_SP, S(1), linear),
    Case("ring shift, same way back", ring_shift(1), ((X, S(0)),), S(0), rolled),
    Case("batch statistics, gradient not summed", batch_statistics(False), ((X, S(0)),), S(0), lambda x: x - x.mean(0)),
]
"""Functions whose backward is the partner of no forward, whatever their operands are."""


def most(x: Any, group: Any) -> Any:
    x = x.contiguous().clone()
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    return x


def neighbour(x: Any, group: Any) -> Any:
    return x.chunk(size(group))[(position(group) + 1) % size(group)]


def own_reshaped(x: Any, group: Any) -> Any:
    return own(x, 0, group).reshape(x.shape[0], -1)


def reversed_rows(x: Any, group: Any) -> Any:
    return torch.cat(gathered_rows(x, group).chunk(size(group))[::-1])


def padded(x: Any, group: Any) -> Any:
    out = x.new_zeros(size(group), *x.shape)
    out[position(group)] = x
    return out.flatten(0, 1)


def reversed_pieces(x: Any, group: Any) -> Any:
    return torch.cat(exchanged(x, 0, 0, group).chunk(size(group))[::-1])
