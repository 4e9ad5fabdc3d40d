"""A whole training step: micro-batches with padding, a tied table, a penalty, one sum of gradients, clipping by norm.

Mesh:    dp outside, tp inside, as for tensor parallelism. All that is new happens once a step: the tokens are counted
         over dp, gradients summed over dp, and squares of pieces over tp.
Choose:  always: it is what stands around each of the other programs.
Breaks:  a mean over a rank's own tokens where padding is uneven; a sum of gradients after every micro-batch, which the
         next one is added to; a penalty that every rank adds; whole weights that count once a rank in the norm, and
         pieces that count on their own rank alone; a tied table that is summed by both of its owners.
Memory:  WORDS * D + D + 2 * H * D / tp
Activations: B / dp * (4 * D + 2 * H / tp + WORDS + 2)
Traffic: tp = MICRO * 2 * all_reduce(B / dp * D)
         dp = all_reduce(WORDS * D + D + 2 * H * D / tp)
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import I, P, R
from shardwise.train import auxiliary, token_count, token_mean
from shardwise.zoo.program import LEARNING_RATE, MOMENTUM, Tensors, ZooProgram, main

B, MICRO, WORDS, D, H, PADDING = 8, 2, 10, 6, 8, -100
PENALTY, LARGEST_NORM = 0.01, 0.5


def padded() -> Tensor:
    """[MICRO, B] targets; most of the padding is on the first ranks."""
    targets = (7 * torch.arange(MICRO * B) % WORDS).reshape(MICRO, B)
    targets[:, : B // 3] = targets[0, 5] = PADDING
    return targets


def single(w: Tensors, x: Tensors) -> Tensor:
    y = F.embedding(x.words.flatten(), w.table)
    h = F.rms_norm(y, (D,), w.scale)
    y = y + F.linear(F.gelu(F.linear(h, w.up)), w.down)
    loss = F.cross_entropy(F.linear(y, w.table), x.targets.flatten(), ignore_index=PADDING)
    return loss + PENALTY * w.table.square().sum()


def scores(w: Tensors, words: Tensor) -> Tensor:
    """[N] words to [N, WORDS]; the table is used at both ends."""
    x = F.embedding(words, w.table)
    h = spmd.convert(F.rms_norm(x, (D,), w.scale), "tp", src=I, dst=R)
    y = spmd.linear(F.gelu(F.linear(h, w.up)), w.down, out_partial_axes="tp")
    return F.linear(x + spmd.all_reduce(y, "tp", src=P, dst=I), w.table)


def step(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    count = torch.stack([token_count(targets != PADDING, "dp") for targets in x.targets.unbind(0)]).sum()
    losses = []
    for words, targets in zip(x.words.unbind(0), x.targets.unbind(0), strict=True):
        each = F.cross_entropy(scores(w, words), targets, ignore_index=PADDING, reduction="none")
        penalty = PENALTY / MICRO * w.table.square().sum()
        loss = token_mean(each, "dp", count=count) + auxiliary(penalty, "dp", src=R)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    return torch.stack(losses).sum()


class ClippedSGD:
    """Gradients are summed once, and scaled so that the norm of all of them is at most LARGEST_NORM."""

    def __init__(self, w: Tensors) -> None:
        self.whole: list[Any] = [w.table, w.scale]
        self.split: list[Any] = [w.up, w.down]
        self.inner = torch.optim.SGD([*self.whole, *self.split], lr=LEARNING_RATE, momentum=MOMENTUM)
        self.state = self.inner.state

    @torch.no_grad()
    def step(self) -> None:
        for weight in (*self.whole, *self.split):
            weight.grad = spmd.all_reduce(weight.grad, "dp", src=P, dst=R)
        whole = torch.stack([weight.grad.square().sum() for weight in self.whole]).sum()
        pieces = torch.stack([spmd.sum(weight.grad.square(), out_partial_axes="tp") for weight in self.split]).sum()
        norm = (spmd.all_reduce(pieces, "tp", src=P, dst=I) + whole).sqrt()
        for weight in (*self.whole, *self.split):
            weight.grad.mul_((LARGEST_NORM / (norm + 1e-6)).clamp(max=1.0))  # 1e-6: as clip_grad_norm_ of PyTorch
        self.inner.step()

    def zero_grad(self) -> None:
        self.inner.zero_grad()


PROGRAM = ZooProgram(
    mesh={"dp": 2, "tp": 2},
    shared=["dp"],
    weights={
        "table": "f64[10, 6] {dp: R, tp: I}",
        "scale": "f64[6] {dp: R, tp: I}",
        "up": "f64[8@tp, 6] {dp: R}",
        "down": "f64[6, 8@tp] {dp: R}",
    },
    inputs={"words": "i64[2, 8@dp] {tp: I}", "targets": "i64[2, 8@dp] {tp: I}"},
    choices={"words": WORDS},
    constants={"targets": padded},
    single=single,
    step=step,
    optimizer=ClippedSGD,
    largest_norm=LARGEST_NORM,
)

if __name__ == "__main__":
    main(PROGRAM)
