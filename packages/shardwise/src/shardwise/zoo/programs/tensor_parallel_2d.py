"""Two-dimensional tensor parallelism: weights are cut along both dims, and activations along their features.

Mesh:    row and column. One layer sums over one of them and the next over the other, so nothing is ever gathered: the
         output of a layer is cut over the axis along which the next one contracts.
Choose:  when tp as large as a model's width asks for would make every device wait for an all-reduce over all of it:
         here each sum is over one axis of the square.
Breaks:  the two axes exchanged in one place: shapes fit as long as the mesh is square.
Memory:  2 * H * D / (row * column)
Activations: B * (2 * H / row + D / column)
Traffic: column = 2 * all_reduce(B * H / row)
         row = 2 * all_reduce(B * D / column)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, H = 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    h = F.gelu(F.linear(x.tokens, w.up))
    y = x.tokens + F.linear(h, w.down)
    return y.square().sum() / B


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    h = spmd.linear(x.tokens, w.up, out_partial_axes="column")
    h = F.gelu(spmd.all_reduce(h, "column", src=P, dst=R))
    y = spmd.linear(h, w.down, out_partial_axes="row")
    y = x.tokens + spmd.all_reduce(y, "row", src=P, dst=R)
    loss = spmd.sum(y.square().mean(0), 0, out_partial_axes="column")
    return spmd.convert(loss, "row", src=R, dst=P)


PROGRAM = ZooProgram(
    mesh={"row": 2, "column": 2},
    shared=["row", "column"],
    weights={"up": "f64[16@row, 12@column]", "down": "f64[12@column, 16@row]"},
    inputs={"tokens": "f64[8, 12@column] {row: R}"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
