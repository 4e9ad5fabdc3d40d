"""Expert parallelism with token dispatch (GShard, Switch): a token travels to its expert and back, by all-to-all.

Mesh:    dp outside, ep inside; both have tokens of their own. An all-to-all a layer each way and back wants fast links,
         so ep lies inside a node where it can.
Choose:  for a mixture of experts: weights grow with the experts, and the work of a token does not.
Breaks:  slots counted over all tokens where each rank fills its own; gradients of experts divided by the size of dp and
         ep, as those of the router are; more tokens for one expert than it has slots, dropped without a word.
Memory:  D * EXPERTS + EXPERTS / ep * D * D
Activations: N / (dp * ep) * (2 * EXPERTS * D + 2 * D + 2 * EXPERTS + 2)
Traffic: ep = 3 * all_to_all(EXPERTS * N / (dp * ep) * D) + all_reduce(D * EXPERTS)
         dp = all_reduce(D * EXPERTS + EXPERTS / ep * D * D)
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import S
from shardwise.zoo.program import Tensors, ZooProgram, main

N, D, EXPERTS = 16, 6, 4


def single(w: Tensors, x: Tensors) -> Tensor:
    score, expert = (x.tokens @ w.router).softmax(-1).max(-1)
    y = x.tokens + score[:, None] * F.gelu(torch.einsum("nd,ndf->nf", x.tokens, w.experts[expert]))
    return y.square().sum() / N


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    gate = (x.tokens @ w.router).softmax(-1)
    score, expert = gate.max(-1)
    chosen = (x.number[:, None] == expert[None, :]).to(gate.dtype)
    # Every token has a slot at every expert, which is empty but at the chosen one: no token is ever dropped.
    sent = chosen[:, :, None] * x.tokens[None]
    here = spmd.all_to_all(sent, "ep", src=S(1), dst=S(0))
    done = F.gelu(torch.bmm(here, w.experts))
    back = spmd.all_to_all(done, "ep", src=S(0), dst=S(1))
    y = x.tokens + score[:, None] * (chosen[:, :, None] * back).sum(0)
    return spmd.mean(y.square().sum(-1), 0, out_partial_axes=("dp", "ep"))


PROGRAM = ZooProgram(
    mesh={"dp": 2, "ep": 2},
    shared=["dp", "ep"],
    weights={"router": "f64[6, 4] {dp: R, ep: R}", "experts": "f64[4@ep, 6, 6] {dp: R}"},
    inputs={"tokens": "f64[16@(dp,ep), 6]", "number": "i64[4] {dp: R, ep: R}"},
    constants={"number": lambda: torch.arange(EXPERTS)},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
