"""The cost of a checked call per operator of four kinds of training program, over the plain call, local and global.

Small tensors on the CPU, so that overhead is what is measured. Every call is repeated with the same operands, as a
training step repeats it: what is measured is a verdict that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from rows import Row, microseconds, side_by_side
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from shardwise import R, S, V, assert_type, set_current_mesh, synchronised_rng
from shardwise.checker import typecheck
from shardwise.interop.torch_compat import fake_world

TARGET = "at most 15 us over plain"
Case = Callable[[], object]


class Operands:
    """What the cases work on. ``typed`` gives every tensor its type: weights equal, activations sharded by batch."""

    def __init__(self, typed: Callable[[Tensor, bool], Tensor]) -> None:
        def weight(*shape: int) -> Tensor:
            return typed(torch.randn(*shape), False)

        def batch(*shape: int) -> Tensor:
            return typed(torch.randn(*shape), True)

        torch.manual_seed(0)
        self.w, self.bias = weight(16, 16), weight(16)
        self.x, self.y = batch(2, 8, 16), batch(2, 8, 16)
        self.q = batch(2, 4, 8, 4)
        self.keys = batch(2, 4, 4, 8)
        self.table = weight(32, 16)
        self.tokens = typed(torch.randint(0, 16, (2, 8)), True)
        self.mask = typed(torch.ones(2, 8, 16, dtype=torch.bool), True)
        self.shift, self.triple, self.logits = batch(2, 16), batch(2, 3, 4), batch(2, 16, 8)
        self.image, self.same, self.kernel = batch(2, 16, 6, 6), weight(2, 16, 6, 6), weight(16, 16, 3, 3)
        self.variance = typed(torch.ones(16), False)
        self.mean, self.running, self.spread = weight(16), weight(16), typed(torch.ones(16), False)
        self.one, self.part = batch(2, 1, 16), batch(16, 4)
        self.scores = batch(16, 4)
        self.chosen = typed(torch.randint(0, 4, (16, 2)), True)
        self.rows, self.flat, self.row_of = batch(16, 16), batch(16, 16), typed(torch.arange(16), False)
        self.states = [weight(16, 16) for _ in range(4)]
        self.others = [weight(16, 16) for _ in range(4)]
        self.moments = [weight(16, 16) for _ in range(4)]
        self.steps = [typed(torch.ones(()), False) for _ in range(2)]
        self.pairs, self.token, self.products = batch(2, 8, 8, 2), weight(1, 1, 16), batch(16, 8, 4)
        self.left, self.right = batch(16, 8, 6), batch(16, 6, 4)
        self.experts = typed(torch.randint(0, 4, (16,)), False)
        self.grouped = typed(torch.randn(8, 16, dtype=torch.bfloat16), False)
        self.expert_weights = typed(torch.randn(2, 16, 16, dtype=torch.bfloat16), False)
        self.ends = typed(torch.tensor([4, 8], dtype=torch.int32), False)


def transformer(o: Operands) -> dict[str, Case]:
    x, y, w, q = o.x, o.y, o.w, o.q
    return {
        "mul": lambda: x * y,
        "add": lambda: x + y,
        "mul by a number": lambda: x * 0.5,
        "linear": lambda: F.linear(x, w, o.bias),
        "matmul": lambda: q @ o.keys,
        "view": lambda: x.view(2, 8, 4, 4),
        "transpose": lambda: x.transpose(1, 2),
        "flatten": lambda: x.flatten(1),
        "unbind of 3": lambda: o.triple.unbind(1),
        "chunk": lambda: x.chunk(2, dim=-1),
        "split": lambda: x.split(8, dim=-1),
        "cat": lambda: torch.cat([x, y], dim=-1),
        "stack": lambda: torch.stack([x, y]),
        "getitem": lambda: x[:, :4],
        "to": lambda: x.to(torch.bfloat16),
        "pow": lambda: x.pow(2),
        "mean": lambda: x.mean(-1, keepdim=True),
        "rms_norm": lambda: F.rms_norm(x, (16,)),
        "layer_norm": lambda: F.layer_norm(x, (16,), o.bias, o.bias),
        "softmax": lambda: torch.softmax(x, dim=-1),
        "silu": lambda: F.silu(x),
        "gelu": lambda: F.gelu(x),
        "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "dropout": lambda: F.dropout(x, 0.1),
        "dropout in evaluation": lambda: F.dropout(x, 0.1, training=False),
        "masked_fill": lambda: x.masked_fill(o.mask, 0.0),
        "embedding": lambda: F.embedding(o.tokens, o.table),
        "cross_entropy": lambda: F.cross_entropy(o.logits, o.tokens, reduction="none"),
        "arange": lambda: torch.arange(8),
        "zeros": lambda: torch.zeros(8, 16),
        "ones_like": lambda: torch.ones_like(x),
        "shape": lambda: x.shape,
        "numel": lambda: x.numel(),
        "expand to sizes of another": lambda: o.token.expand(x.shape[0], -1, -1),
        "repeat_interleave": lambda: q.repeat_interleave(2, dim=1),
        "view_as_complex": lambda: torch.view_as_complex(o.pairs),
        "linear under autocast": lambda: _autocast(x, w),
    }


def _autocast(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.linear(x, w)


def diffusion(o: Operands) -> dict[str, Case]:
    x = o.x
    return {
        "unsqueeze": lambda: o.shift.unsqueeze(1),
        "addcmul": lambda: torch.addcmul(x, x, o.y),
        "randn_like": lambda: torch.randn_like(x),
        "rand": lambda: torch.rand(8),
        "sin": lambda: x.sin(),
        "einsum": lambda: torch.einsum("bsd,de->bse", x, o.w),
        "permute": lambda: o.image.permute(0, 2, 3, 1),
        "expand": lambda: o.one.expand(-1, 8, -1),
        "mse_loss": lambda: F.mse_loss(x, o.y, reduction="none"),
    }


def experts(o: Operands) -> dict[str, Case]:
    return {
        "topk": lambda: o.scores.topk(2, dim=-1),
        "sort": lambda: o.scores.sort(dim=-1),
        "one_hot": lambda: F.one_hot(o.chosen, 4),
        "gather": lambda: o.scores.gather(1, o.chosen),
        "where": lambda: torch.where(o.mask, o.x, o.y),
        "cumsum": lambda: o.scores.cumsum(1),
        "index_select": lambda: o.rows.index_select(1, o.row_of),
        "index_add_": lambda: o.rows.index_add_(1, o.row_of, o.flat),
        "scatter_": lambda: o.scores.scatter_(1, o.chosen, 0.0),
        "scatter_add": lambda: o.scores.scatter_add(1, o.chosen, o.scores[:, :2]),
        "bincount": lambda: torch.bincount(o.experts, minlength=4),
        "nonzero": lambda: o.experts.nonzero(),
        "masked_select": lambda: o.x.masked_select(o.mask),
        "baddbmm": lambda: torch.baddbmm(o.products, o.left, o.right),
        "grouped_mm": lambda: F.grouped_mm(o.grouped, o.expert_weights, offs=o.ends),
        "setitem": lambda: o.rows.__setitem__((slice(None), slice(0, 4)), o.part),
    }


def convolutional(o: Operands) -> dict[str, Case]:
    image, one, zero = o.image, o.variance, o.mean
    return {
        "conv2d": lambda: F.conv2d(image, o.kernel, padding=1),
        "batch_norm": lambda: F.batch_norm(o.same, None, None, one, zero, training=True),
        "batch_norm with running statistics": lambda: F.batch_norm(
            o.same, o.running, o.spread, one, zero, training=True
        ),
        "batch_norm in evaluation": lambda: F.batch_norm(image, zero, one, one, zero),
        "group_norm": lambda: F.group_norm(image, 4, one, zero),
        "relu": lambda: F.relu(image),
        "relu in place": lambda: F.relu(image, inplace=True),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(image, 1),
        "pad": lambda: F.pad(image, (1, 1)),
        "interpolate": lambda: F.interpolate(image, scale_factor=2),
    }


def optimizer(o: Operands) -> dict[str, Case]:
    a, b = o.states[0], o.others[0]
    return {
        "add_": lambda: a.add_(b, alpha=0.0),
        "mul_": lambda: a.mul_(1.0),
        "lerp_": lambda: a.lerp_(b, 0.0),
        "addcmul_": lambda: a.addcmul_(b, b, value=0.0),
        "copy_": lambda: a.copy_(b),
        "zero_": lambda: o.others[3].zero_(),
        "sqrt": lambda: b.sqrt(),
        "_fused_adamw_ of 2": lambda: _fused_adamw(o),
        "_foreach_add_ of 4": lambda: torch._foreach_add_(o.states, o.others, alpha=0.0),
        "_foreach_mul_ of 4": lambda: torch._foreach_mul_(o.states, 1.0),
        "_foreach_lerp_ of 4": lambda: torch._foreach_lerp_(o.states, o.others, 0.0),
        "_foreach_addcmul_ of 4": lambda: torch._foreach_addcmul_(o.states, o.others, o.others, 0.0),
        "_foreach_sqrt of 4": lambda: torch._foreach_sqrt(o.states),
        "_foreach_norm of 4": lambda: torch._foreach_norm(o.states),
    }


def _fused_adamw(o: Operands) -> None:
    states, gradients, first, second = o.states[:2], o.others[:2], o.moments[:2], o.moments[2:]
    torch._fused_adamw_(
        states,
        gradients,
        first,
        second,
        [],
        o.steps,
        lr=0.0,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


GROUPS: dict[str, Callable[[Operands], dict[str, Case]]] = {
    "transformer": transformer,
    "diffusion transformer": diffusion,
    "mixture of experts": experts,
    "convolutional network": convolutional,
    "optimizer": optimizer,
}


def measure(quick: bool = False) -> list[Row]:
    """Two rows per operator: what a checked call costs over the plain one, with local and with global types."""
    repeats, calls = (3, 3) if quick else (15, 100)
    torch.set_num_threads(1)
    rows = []
    with fake_world(rank=0, world_size=4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with set_current_mesh(mesh), torch.no_grad():
            for group, cases in GROUPS.items():
                plain = cases(Operands(lambda x, sharded: x))
                local = cases(Operands(lambda x, sharded: typed(x, V if sharded else R)))
                globally = cases(Operands(lambda x, sharded: typed(x, S(0) if sharded else R)))
                for name in plain:
                    timers = (
                        _timer(plain[name], calls),
                        _timer(local[name], calls, local=True),
                        _timer(globally[name], calls, local=False),
                    )
                    for warm in timers:
                        warm()
                    medians, ratios = side_by_side(timers, repeats)
                    for mode, at in (("local", 1), ("global", 2)):
                        title = f"A known call, {group}"
                        rows.append(Row(title, name, "us", medians[0], medians[at], ratios[at], TARGET, mode))
    return rows


def typed(x: Tensor, over_dp: Any) -> Tensor:
    x.__dict__.clear()  # forget that a factory has made it
    return assert_type(x, {"dp": over_dp, "tp": R})


def _timer(case: Case, calls: int, **options: bool) -> Callable[[], float]:
    def plain() -> float:
        return microseconds(case, calls)

    def checked() -> float:
        with typecheck(**options), synchronised_rng("tp"):
            return microseconds(case, calls)

    return checked if options else plain
