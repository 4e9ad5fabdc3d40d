"""Sequence parallelism (Korthikanti et al., 2022): between the matmuls each tp rank holds a piece of the sequence.

Mesh:    as for tensor parallelism: tp inside a node. The all-reduce of a layer becomes a gather and a reduce-scatter of
         the same bytes, and what lies between layers is kept once and not tp times.
Choose:  always with tensor parallelism: it costs nothing and saves the activations of norms and residuals.
Breaks:  weights of norms and biases see a piece of the sequence: their gradients owe a sum over tp which nothing in the
         forward pass shows. Here they are R over tp, so the sum is their type's.
Memory:  2 * H * D / tp + 2 * D
Activations: B / dp * T * (2 * H / tp + 2 * D / tp + D)
Traffic: tp = 2 * all_gather(B / dp * T / tp * D) + 2 * reduce_scatter(B / dp * T * D) + all_reduce(2 * D)
         dp = all_reduce(2 * H * D / tp + 2 * D)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, T, D, H = 4, 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    h = F.rms_norm(x.tokens, (D,), w.norm)
    h = F.silu(F.linear(h, w.up))
    y = x.tokens + F.linear(h, w.down) + w.bias
    return y.square().sum() / (B * T)


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    h = F.rms_norm(x.tokens, (D,), w.norm)
    h = spmd.all_gather(h, "tp", src=S(1), dst=R)
    h = F.silu(F.linear(h, w.up))
    y = spmd.linear(h, w.down, out_partial_axes="tp")
    y = x.tokens + spmd.reduce_scatter(y, "tp", src=P, dst=S(1)) + w.bias
    return spmd.mean(y.square().sum(-1), (0, 1), out_partial_axes=("dp", "tp"))


PROGRAM = ZooProgram(
    mesh={"dp": 2, "tp": 2},
    shared=["dp", "tp"],
    weights={
        "norm": "f64[12] {dp: R, tp: R}",
        "up": "f64[16@tp, 12] {dp: R}",
        "down": "f64[12, 16@tp] {dp: R}",
        "bias": "f64[12] {dp: R, tp: R}",
    },
    inputs={"tokens": "f64[4@dp, 8@tp, 12]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
