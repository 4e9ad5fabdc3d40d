"""Sequence parallelism by heads (DeepSpeed-Ulysses): attention sees whole sequences of some heads, by all-to-all.

Mesh:    sp inside a node if it can be; an all-to-all moves 1/sp of the bytes that a gather moves, so sp may also cross.
Choose:  for long sequences and at least sp heads (with grouped queries: sp key-value heads).
Breaks:  more ranks than heads; the way back in another order of dims, which mixes heads and positions and still runs.
Memory:  4 * D * D
Activations: B / dp * T / sp * (6 * D + HEADS)
Traffic: sp = 2 * all_to_all(4 * B / dp * T / sp * D) + all_reduce(4 * D * D)
         dp = all_reduce(4 * D * D)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, T, HEADS, A = 4, 8, 4, 3
D = HEADS * A


def split(x: Tensor) -> Tensor:
    """[B, T, 3 D] to [3, B, HEADS, T, A]."""
    return x.view(*x.shape[:2], 3, HEADS, A).permute(2, 0, 3, 1, 4)


def single(w: Tensors, x: Tensors) -> Tensor:
    query, key, value = split(x.tokens @ w.inner).unbind(0)
    seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    y = x.tokens + seen.transpose(1, 2).flatten(2) @ w.outer
    return y.square().sum() / (B * T)


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    parts = split(x.tokens @ w.inner)
    query, key, value = spmd.all_to_all(parts, "sp", src=S(3), dst=S(2)).unbind(0)
    seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    seen = spmd.all_to_all(seen, "sp", src=S(1), dst=S(2))
    y = x.tokens + seen.transpose(1, 2).flatten(2) @ w.outer
    return spmd.mean(y.square().sum(-1), (0, 1), out_partial_axes=("dp", "sp"))


PROGRAM = ZooProgram(
    mesh={"dp": 2, "sp": 2},
    shared=["dp", "sp"],
    weights={"inner": "f64[12, 36] {dp: R, sp: R}", "outer": "f64[12, 12] {dp: R, sp: R}"},
    inputs={"tokens": "f64[4@dp, 8@sp, 12]"},
    within={"the heads": "f64[4@dp, 4@sp, 8, 3]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
