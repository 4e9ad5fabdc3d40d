"""Expert parallelism: every ep rank has its own experts, tokens travel by all-to-all, the router is shared by all."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import P, PartitionSpec, R, S

mesh = start("dp", "ep")
TOKENS, WIDTH, EXPERTS, BALANCE = 16, 6, 4, 0.1


class MoE(nn.Module):
    """A mixture in which every token visits every expert, weighted by the router."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.router = nn.Parameter(whole(seed, WIDTH, EXPERTS))
        self.experts = nn.Parameter(piece(whole(seed + 1, EXPERTS, WIDTH, WIDTH), mesh, ep=0))
        spmd.assert_type(self.router, {"dp": R, "ep": R})
        spmd.assert_type(self.experts, {"dp": R, "ep": S(0)})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[N, D] tokens to the same, and the balance loss; N is this rank's piece."""
        gate = (x @ self.router).softmax(-1)
        sent = gate.T[:, :, None] * x[None]
        here = spmd.all_to_all(sent, "ep", src=S(1), dst=S(0))
        done = F.gelu(torch.bmm(here, self.experts))
        back = spmd.all_to_all(done, "ep", src=S(0), dst=S(1))
        load = spmd.sum(gate, 0, out_partial_axes=("dp", "ep")) / (gate.shape[0] * dist.get_world_size())
        load = spmd.all_reduce(load, "ep", src=P, dst=R)
        load = spmd.all_reduce(load, "dp", src=P, dst=R)
        return x + back.sum(0), EXPERTS * load.square().sum()


with spmd.set_current_mesh(mesh):
    model = MoE(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        # The order of the axes is the order of the pieces: dp outside, ep inside.
        x = piece(whole(100 + step, TOKENS, WIDTH), mesh, dp=0, ep=0)
        x = spmd.assert_type(x, {}, PartitionSpec(("dp", "ep"), None))
        y, balance = model(x)
        tokens = y.square().sum(-1)
        loss = spmd.sum(tokens, 0, out_partial_axes=("dp", "ep")) / (tokens.shape[0] * dist.get_world_size())
        balance = spmd.convert(spmd.convert(balance, "dp", src=R, dst=P), "ep", src=R, dst=P)
        (loss + BALANCE * balance).backward()
        dist.all_reduce(model.router.grad, group=mesh.get_group("dp"))
        dist.all_reduce(model.router.grad, group=mesh.get_group("ep"))
        dist.all_reduce(model.experts.grad, group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
