"""Vocabulary-parallel cross entropy (Megatron-LM): no rank ever holds the scores of all words.

Mesh:    tp, as for the layers: the last matmul is column-parallel and its columns are words.
Choose:  whenever the vocabulary is large beside the width; the scores of 128,000 words are most of a step's memory.
Breaks:  the largest score must be of all words and not of a rank's own; the score of the target lies on one rank, and
         the others must add 0 for it; a sum of exponents that is not reduced is a plausible, smaller loss.
Memory:  WORDS / tp * D
Activations: B / dp * (WORDS / tp + WORDS / tp / 8 + 1)
Traffic: tp = 5 * all_reduce(B / dp)
         dp = all_reduce(WORDS / tp * D)
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, WORDS = 8, 6, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    return F.cross_entropy(F.linear(x.tokens, w.head), x.targets, reduction="sum") / B


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    scores = F.linear(x.tokens, w.head)
    largest = scores.detach().amax(-1, keepdim=True)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=mesh.get_group("tp"))
    scores = scores - largest
    every = spmd.all_reduce(spmd.sum(scores.exp(), -1, out_partial_axes="tp"), "tp", src=P, dst=R)
    is_target = x.words == x.targets[:, None]
    target = spmd.sum(torch.where(is_target, scores, 0.0), -1, out_partial_axes="tp")
    losses = every.log() - spmd.all_reduce(target, "tp", src=P, dst=R)
    loss = spmd.mean(losses, "dp", src=S(0), dst=P)
    return spmd.convert(loss, "tp", src=R, dst=P)


PROGRAM = ZooProgram(
    mesh={"dp": 2, "tp": 2},
    shared=["dp", "tp"],
    weights={"head": "f64[16@tp, 6] {dp: R}"},
    inputs={"tokens": "f64[8@dp, 6] {tp: R}", "targets": "i64[8@dp] {tp: R}", "words": "i64[16@tp] {dp: R}"},
    choices={"targets": WORDS},
    constants={"words": lambda: torch.arange(WORDS)},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
