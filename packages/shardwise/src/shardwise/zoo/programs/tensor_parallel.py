"""Tensor parallelism (Megatron-LM): a column-parallel layer, then a row-parallel one, one all-reduce each way.

Mesh:    tp innermost: its all-reduces lie between the matmuls of every layer and hide behind nothing, so its ranks
         belong inside one node. dp outside: one sum of gradients a step crosses the network.
Choose:  when one layer is too large or too slow for one device, and up to the devices of a node.
Breaks:  a bias added before the all-reduce is added tp times; a norm's weight whose input is R where it should be I
         gets a piece of its gradient; more tp ranks than heads or columns leave ranks idle.
Memory:  2 * H * D / tp + 2 * D
Activations: B / dp * (2 * H / tp + 2 * D + 2)
Traffic: tp = 2 * all_reduce(B / dp * D)
         dp = all_reduce(2 * H * D / tp + 2 * D)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import I, P, R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, H = 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    h = F.layer_norm(x.tokens, (D,), w.norm)
    h = F.gelu(F.linear(h, w.up))
    y = x.tokens + F.linear(h, w.down) + w.bias
    return (y - x.targets).square().sum() / B


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    h = F.layer_norm(x.tokens, (D,), w.norm)
    h = spmd.convert(h, "tp", src=I, dst=R)
    h = F.gelu(F.linear(h, w.up))
    y = spmd.linear(h, w.down, out_partial_axes="tp")
    y = x.tokens + spmd.all_reduce(y, "tp", src=P, dst=I) + w.bias
    return spmd.mean((y - x.targets).square().sum(-1), "dp", src=S(0), dst=P)


PROGRAM = ZooProgram(
    mesh={"dp": 2, "tp": 2},
    shared=["dp"],
    weights={
        "norm": "f64[12] {dp: R, tp: I}",
        "up": "f64[16@tp, 12] {dp: R}",
        "down": "f64[12, 16@tp] {dp: R}",
        "bias": "f64[12] {dp: R, tp: I}",
    },
    inputs={"tokens": "f64[8@dp, 12] {tp: I}", "targets": "f64[8@dp, 12] {tp: I}"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
