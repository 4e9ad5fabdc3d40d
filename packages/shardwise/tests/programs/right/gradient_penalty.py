"""A GAN with gradient penalty: the inner derivative is by what each rank alone has."""

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


with spmd.set_current_mesh(mesh):
    G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    D = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    spmd.assert_type([*G.parameters(), *D.parameters()], {"dp": R, "tp": I})
    og, od = torch.optim.Adam(G.parameters(), betas=(0.0, 0.9)), torch.optim.Adam(D.parameters(), betas=(0.0, 0.9))

    def share(t):
        return spmd.assert_type(cut(t, 0, DP, dpr), {"dp": S(0), "tp": I})

    def reduce(params):
        for p in params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=dp)

    for _step in range(2):
        real, z, eps = share(torch.randn(8, 8)), share(torch.randn(8, 4)), share(torch.rand(8, 1))
        fake = G(z).detach()
        mix = (eps * real + (1 - eps) * fake).requires_grad_()
        (gx,) = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)
        gp = (gx.norm(dim=1) - 1).square().sum() / 8
        d_loss = D(fake).sum() / 8 - D(real).sum() / 8 + 10 * gp
        od.zero_grad()
        spmd.reinterpret(d_loss, "dp", src=V, dst=P).backward()
        reduce(D.parameters())
        od.step()
        og.zero_grad()
        D.requires_grad_(False)
        g_loss = -D(G(z)).sum() / 8
        spmd.reinterpret(g_loss, "dp", src=V, dst=P).backward()
        D.requires_grad_(True)
        reduce(G.parameters())
        og.step()
