"""Hybrid sharded data parallelism (HSDP): weights lie in pieces inside a group of ranks, and groups are replicas.

Mesh:    shard inside, where links are fast and weights travel twice a step; replica outside, where only the gradients
         of a rank's own piece are summed.
Choose:  when the model fits on the devices of one node (or a few), and gathers across all of them would be too slow.
Breaks:  the sum over replica is easily forgotten, because the one over shard comes from the backward of the gather.
Memory:  2 * H * D / shard
Activations: B / (replica * shard) * (2 * H + D) + H * D
Traffic: shard = 2 * all_gather(H * D / shard) + 2 * reduce_scatter(H * D)
         replica = all_reduce(2 * H * D / shard)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, H = 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    y = F.linear(F.gelu(F.linear(x.tokens, w.up)), w.down)
    return (y - x.targets).square().sum() / B


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    up = spmd.all_gather(w.up, "shard", src=S(0), dst=R)
    h = F.gelu(F.linear(x.tokens, up))
    down = spmd.all_gather(w.down, "shard", src=S(0), dst=R)
    y = F.linear(h, down)
    return spmd.mean((y - x.targets).square().sum(-1), 0, out_partial_axes=("replica", "shard"))


PROGRAM = ZooProgram(
    mesh={"replica": 2, "shard": 2},
    shared=["replica", "shard"],
    weights={"up": "f64[16@shard, 12] {replica: R}", "down": "f64[12@shard, 16] {replica: R}"},
    inputs={"tokens": "f64[8@(replica,shard), 12]", "targets": "f64[8@(replica,shard), 12]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
