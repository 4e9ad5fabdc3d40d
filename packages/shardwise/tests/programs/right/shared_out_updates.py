"""Muon whose ranks share out the layers, write their updates side by side into zeros, and sum them."""

# options: world_size=4

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
DP, TP = mesh["dp"].size(), mesh["tp"].size()
dpr, tpr = mesh.get_local_rank("dp"), mesh.get_local_rank("tp")
torch.manual_seed(0)


def cut(full, dim, n, r):
    return full.chunk(n, dim)[r].clone()


def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        m = x @ x.T
        x = a * x + (b * m + c * m @ m) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = group["params"]
            total = sum(p.numel() for p in params)
            updates = torch.zeros(total)
            offset = 0
            for i, p in enumerate(params):
                if i % DP == dpr:
                    state = self.state[p]
                    if "buf" not in state:
                        state["buf"] = torch.zeros_like(p.grad)
                    buf = state["buf"]
                    buf.mul_(group["momentum"]).add_(p.grad)
                    g = newton_schulz(p.grad.add(buf, alpha=group["momentum"]))
                    updates[offset : offset + p.numel()] = g.flatten()
                offset += p.numel()
            dist.all_reduce(updates, group=dp)
            offset = 0
            for p in params:
                p.add_(updates[offset : offset + p.numel()].view_as(p), alpha=-group["lr"])
                offset += p.numel()


with spmd.set_current_mesh(mesh):
    layers = [nn.Parameter(torch.randn(8, 8) * 0.1) for _ in range(3)]
    spmd.assert_type(layers, {"dp": R, "tp": I})
    opt = Muon(layers)
    for _step in range(2):
        x = spmd.assert_type(cut(torch.randn(8, 8), 0, DP, dpr), {"dp": S(0), "tp": I})
        for w in layers:
            x = torch.tanh(x @ w)
        loss = spmd.reinterpret(x.square().sum() / 64, "dp", src=V, dst=P)
        opt.zero_grad()
        loss.backward()
        for w in layers:
            dist.all_reduce(w.grad, group=dp)
        opt.step()
