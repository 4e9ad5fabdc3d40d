"""Three-dimensional tensor parallelism (Agarwal et al., 1995): weights cut over three axes, each used for one thing.

Mesh:    a cube. Rows of the batch are cut over depth, features over column and row in turn; a weight lies in pieces
         over all three axes and is gathered over depth where it is used.
Choose:  on very large machines with few tokens a device: every collective is over the cube root of the ranks.
Breaks:  what is summed over which axis changes from layer to layer; a transposed cube still has shapes that fit.
Memory:  2 * H * D / (depth * row * column)
Activations: B / depth * (2 * H / row + D / column) + H * D / (row * column)
Traffic: depth = 2 * all_gather(H * D / (depth * row * column)) + 2 * reduce_scatter(H * D / (row * column))
         column = 2 * all_reduce(B / depth * H / row)
         row = 2 * all_reduce(B / depth * D / column)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, H = 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    h = F.gelu(F.linear(x.tokens, w.up))
    y = x.tokens + F.linear(h, w.down)
    return y.square().sum() / B


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    up = spmd.all_gather(w.up, "depth", src=S(0), dst=R)
    h = spmd.linear(x.tokens, up, out_partial_axes="column")
    h = F.gelu(spmd.all_reduce(h, "column", src=P, dst=R))
    down = spmd.all_gather(w.down, "depth", src=S(0), dst=R)
    y = spmd.linear(h, down, out_partial_axes="row")
    y = x.tokens + spmd.all_reduce(y, "row", src=P, dst=R)
    rows = spmd.sum(y.square(), 1, out_partial_axes="column")
    loss = spmd.mean(rows, "depth", src=S(0), dst=P)
    return spmd.convert(loss, "row", src=R, dst=P)


PROGRAM = ZooProgram(
    mesh={"depth": 2, "row": 2, "column": 2},
    shared=["depth", "row", "column"],
    weights={"up": "f64[16@(row,depth), 12@column]", "down": "f64[12@(column,depth), 16@row]"},
    inputs={"tokens": "f64[8@depth, 12@column] {row: R}"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
