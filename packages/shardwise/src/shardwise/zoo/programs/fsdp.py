"""Fully sharded data parallelism (FSDP, ZeRO stage 3): weights lie in pieces and are gathered where they are used.

Mesh:    one axis, dp. Every layer gathers its weight before it is used and again in backward, which can go on while the
         layer before it computes; so the axis may cross nodes as long as a layer computes longer than its weight
         travels.
Choose:  when the model does not fit with data parallelism, and there are enough tokens a device to hide the gathers.
Breaks:  a weight that is kept gathered costs what was saved; a bias that is left whole needs a sum of its own, which
         the gathered weights have from the backward of their gather.
Memory:  2 * H * D / dp
Activations: B / dp * (2 * H + D)
Traffic: dp = 4 * all_gather(H * D / dp) + 2 * reduce_scatter(H * D)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.checkpoint import checkpoint

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, H = 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    y = F.linear(F.gelu(F.linear(x.tokens, w.up)), w.down)
    return (y - x.targets).square().sum() / B


def gathered_linear(x: Tensor, piece: Tensor) -> Tensor:
    """The whole weight is there while it is used, and no longer."""
    return F.linear(x, spmd.all_gather(piece, "dp", src=S(0), dst=R))


def linear(x: Tensor, piece: Tensor) -> Tensor:
    """What a checkpoint does not keep it makes again: backward gathers the weight a second time."""
    y: Tensor = checkpoint(gathered_linear, x, piece, use_reentrant=False)
    return y


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    h = F.gelu(linear(x.tokens, w.up))
    y = linear(h, w.down)
    return spmd.mean((y - x.targets).square().sum(-1), "dp", src=S(0), dst=P)


PROGRAM = ZooProgram(
    mesh={"dp": 4},
    shared=["dp"],
    weights={"up": "f64[16@dp, 12]", "down": "f64[12@dp, 16]"},
    inputs={"tokens": "f64[8@dp, 12]", "targets": "f64[8@dp, 12]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
