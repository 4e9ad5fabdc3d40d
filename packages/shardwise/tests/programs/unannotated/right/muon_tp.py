# Muon on tensor-parallel weights: the gathered momentum is orthogonalised. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, wait_tensor


def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, group, lr=0.05, mu=0.9):
        super().__init__(params, {"lr": lr, "mu": mu})
        self.group = group

    @torch.no_grad()
    def step(self):
        world, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
        for pg in self.param_groups:
            for p in pg["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(pg["mu"]).add_(p.grad)
                dim = p.tp_dim
                full = m if dim is None else wait_tensor(all_gather_tensor(m, dim, self.group))
                u = newton_schulz(full)
                u = u * max(1, full.shape[0] / full.shape[1]) ** 0.5
                if dim is not None:
                    u = u.chunk(world, dim)[rank]
                p.add_(u, alpha=-pg["lr"])


class ToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, g):
        return wait_tensor(all_reduce(g, "sum", ctx.group)), None


class FromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return wait_tensor(all_reduce(x, "sum", group))

    @staticmethod
    def backward(ctx, g):
        return g, None


class MLP(nn.Module):
    def __init__(self, d, h, group):
        super().__init__()
        self.group, (n, r) = group, (dist.get_world_size(group), dist.get_rank(group))
        self.gate, self.up, self.down = (
            nn.Parameter(w)
            for w in (
                (torch.randn(h, d) / d**0.5).chunk(n, 0)[r].clone(),
                (torch.randn(h, d) / d**0.5).chunk(n, 0)[r].clone(),
                (torch.randn(d, h) / h**0.5).chunk(n, 1)[r].clone(),
            )
        )
        self.gate.tp_dim = self.up.tp_dim = 0
        self.down.tp_dim = 1

    def forward(self, x):
        h = ToTP.apply(x, self.group)
        return FromTP.apply((F.silu(h @ self.gate.T) * (h @ self.up.T)) @ self.down.T, self.group)


dist.init_process_group("gloo")
torch.manual_seed(12)
mlp, proj = MLP(8, 16, dist.group.WORLD), nn.Linear(8, 8, bias=False)
proj.weight.tp_dim = None
opt = Muon([*mlp.parameters(), *proj.parameters()], dist.group.WORLD)
losses = []
for _ in range(3):
    x, y = torch.randn(10, 8), torch.randn(10, 8)
    loss = F.mse_loss(mlp(proj(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
if dist.get_rank() == 0:
    print(*losses)
dist.destroy_process_group()
