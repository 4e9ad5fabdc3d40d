"""Context parallelism by gathering keys and values (Llama 3), with the causal work dealt out evenly.

Mesh:    cp outside of tp and inside of dp: it moves keys and values of a layer once, few with grouped queries.
Choose:  for sequences too long for one device when heads are few; simpler than a ring, and the masks may be any.
Breaks:  a causal mask by local positions lets rank 1 look at nothing before its own piece; with pieces in plain order
         the last rank has nearly all of the work. Here the first position lies beside the last one, the second beside
         the last but one, so that on any number of ranks all have the same work; positions say which are whose.
Memory:  3 * D * D
Activations: B / dp * T / cp * (2 * D + 2 * cp * D + T) + T / cp * T / 8
Traffic: cp = 2 * all_gather(B / dp * T / cp * D) + 2 * reduce_scatter(B / dp * T * D) + all_gather(T / cp) +
             all_reduce(3 * D * D)
         dp = all_reduce(3 * D * D)
"""

import math

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, T, D = 4, 8, 6


def positions() -> Tensor:
    """Of the sequence, in the order in which it lies on the ranks: 0 7 1 6 2 5 3 4, on 2 ranks 0 7 1 6 and 2 5 3 4."""
    early, late = torch.arange(T).chunk(2)
    return torch.stack([early, late.flip(0)], 1).flatten()


def attention(query: Tensor, key: Tensor, value: Tensor, own: Tensor, every: Tensor) -> Tensor:
    """Rows at positions ``own`` look at columns at positions ``every`` that are not later."""
    later = every[None, :] > own[:, None]
    return (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(later, -torch.inf).softmax(-1) @ value


def single(w: Tensors, x: Tensors) -> Tensor:
    seen = attention(x.tokens @ w.query, x.tokens @ w.key, x.tokens @ w.value, x.position, x.position)
    return (x.tokens + seen).square().sum() / (B * T)


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    query, key, value = x.tokens @ w.query, x.tokens @ w.key, x.tokens @ w.value
    key = spmd.all_gather(key, "cp", src=S(1), dst=R)
    value = spmd.all_gather(value, "cp", src=S(1), dst=R)
    every = spmd.all_gather(x.position, "cp", src=S(0), dst=R)
    y = x.tokens + attention(query, key, value, x.position, every)
    return spmd.mean(y.square().sum(-1), (0, 1), out_partial_axes=("dp", "cp"))


PROGRAM = ZooProgram(
    mesh={"dp": 2, "cp": 2},
    shared=["dp", "cp"],
    weights=dict.fromkeys(("query", "key", "value"), "f64[6, 6] {dp: R, cp: R}"),
    inputs={"tokens": "f64[4@dp, 8@cp, 6]", "position": "i64[8@cp] {dp: R}"},
    constants={"position": positions},
    within={"half of the positions": "i64[4@cp]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
