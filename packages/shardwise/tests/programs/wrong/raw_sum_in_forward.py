"""dist.all_reduce in forward is nothing to autograd: backward passes its gradient on without the sum over tp."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(16), nn.Linear(16, 8, bias=False), nn.Linear(8, 16, bias=False)
        for weight, place in ((self.norm.weight, R), (self.up.weight, S(0)), (self.down.weight, S(1))):
            spmd.assert_type(weight, {"dp": R, "tp": place})

    def forward(self, x):
        y = spmd.linear(F.gelu(self.up(self.norm(x))), self.down.weight, out_partial_axes="tp")
        dist.all_reduce(y, group=tp)  # SW606
        return x + y


with spmd.set_current_mesh(mesh):
    blocks = nn.Sequential(MLP(), MLP())
    head = spmd.assert_type(nn.Parameter(torch.randn(8, 16)), {"dp": R, "tp": S(0)})
    for _ in range(2):
        x = spmd.assert_type(torch.randn(4, 16), {"dp": S(0), "tp": R})
        logits = F.linear(blocks(x), head)
        part = logits.square().sum() / 8
        dist.all_reduce(part, op=dist.ReduceOp.AVG, group=tp)  # SW606
        loss = spmd.convert(part, "tp", src=R, dst=P)
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    y = spmd.reinterpret(F.linear(blocks(x), head), "tp", src=V, dst=P)
    dist.all_reduce(y, group=tp)
    y = spmd.mutate_type(y, "tp", src=R, dst=I)
    spmd.reinterpret(y.square().sum(), "dp", src=V, dst=P).backward()
