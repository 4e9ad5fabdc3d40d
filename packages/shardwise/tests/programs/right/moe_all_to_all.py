# options: world_size=4
"""Expert parallelism: tokens are sorted by expert, sent with all_to_all of uneven sizes, and brought back."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4,), mesh_dim_names=("ep",))
EP = mesh["ep"].size()
EXPERTS, TOP, WIDTH = 8, 2, 16


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = spmd.assert_type(nn.Parameter(torch.randn(EXPERTS, WIDTH)), {"ep": R})
        self.up = spmd.assert_type(nn.Parameter(torch.randn(EXPERTS // EP, WIDTH, 32)), {"ep": S(0)})
        self.down = spmd.assert_type(nn.Parameter(torch.randn(EXPERTS // EP, 32, WIDTH)), {"ep": S(0)})
        self.register_buffer("load", torch.zeros(EXPERTS))

    def forward(self, x):
        scores = F.linear(x, self.router).softmax(-1)
        weights, experts = scores.topk(TOP, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        flat = experts.flatten()
        order = torch.argsort(flat, stable=True)
        counts = torch.bincount(flat, minlength=EXPERTS)
        with torch.no_grad():
            self.load.add_(spmd.all_reduce(counts.float(), "ep", src=V, dst=R))
        capacity = x.shape[0] * TOP // EXPERTS
        position = F.one_hot(flat[order], EXPERTS).cumsum(0).gather(1, flat[order, None]).squeeze(1) - 1
        kept = position < capacity
        sent = x.new_zeros(EXPERTS, capacity, x.shape[-1])
        sent[flat[order][kept], position[kept]] = x[order // TOP][kept]
        received = spmd.all_to_all(sent.view(EP, -1, WIDTH), "ep", src=V, dst=V)
        tokens = received.view(EP, EXPERTS // EP, capacity, WIDTH).transpose(0, 1).flatten(1, 2)
        tokens = torch.bmm(F.silu(torch.bmm(tokens, self.up)), self.down)
        tokens = tokens.view(EXPERTS // EP, EP, capacity, WIDTH).transpose(0, 1).flatten(1, 2)
        back = spmd.all_to_all(tokens.contiguous(), "ep", src=V, dst=V).view(EXPERTS, capacity, WIDTH)
        rows = back[flat[order], position.clamp(max=capacity - 1)] * kept.unsqueeze(-1)
        out = torch.zeros_like(x)
        out.index_add_(0, order // TOP, rows * weights.flatten()[order].unsqueeze(-1))
        gathered = torch.zeros_like(x).scatter_add(0, (order // TOP)[:, None].expand(-1, WIDTH), rows)
        return out + 0.0 * gathered, self.balance(scores, experts)

    def balance(self, scores, experts):
        fraction = F.one_hot(experts, EXPERTS).float().sum((0, 1)) / experts.numel()
        return EXPERTS * (fraction * scores.mean(0)).sum()


with spmd.set_current_mesh(mesh):
    moe = MoE()
    x = spmd.assert_type(torch.randn(32, WIDTH), {"ep": S(0)})
    y, auxiliary = moe(x)
    loss = y.square().sum() / (32 * EP) + 0.01 * auxiliary / EP
    spmd.reinterpret(loss, "ep", src=V, dst=P).backward()
    dist.all_reduce(moe.router.grad)
