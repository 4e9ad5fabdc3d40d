# Two towers with tensor parallel blocks, trained to match; rows are gathered over dp. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

TP = DP = None


class F_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=TP)
        return g


class G_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x, group=TP)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class SwiGLU(nn.Module):
    """w13 is laid out as [gate_0; up_0; gate_1; up_1; ...], a pair per rank."""

    def __init__(self, d, hidden):
        super().__init__()
        tp, r = dist.get_world_size(TP), dist.get_rank(TP)
        gate, up, down = torch.randn(hidden, d) * 0.2, torch.randn(hidden, d) * 0.2, torch.randn(d, hidden) * 0.2
        n = hidden // tp
        mine = slice(r * n, (r + 1) * n)
        self.w13 = nn.Parameter(torch.cat([gate[mine], up[mine]]))
        self.w2 = nn.Parameter(down[:, mine].clone())

    def forward(self, x):
        gate, up = F.linear(F_.apply(x), self.w13).chunk(2, -1)
        return G_.apply(F.linear(F.silu(gate) * up, self.w2))


class Tower(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mlp, self.out = nn.RMSNorm(d), SwiGLU(d, 4 * d), nn.Linear(d, d)

    def forward(self, x):
        return F.normalize(self.out((x + self.mlp(self.norm(x))).mean(1)), dim=-1)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size(DP))]
        dist.all_gather(out, x.contiguous(), group=DP)
        return torch.cat(out)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=DP)
        return g.chunk(dist.get_world_size(DP))[dist.get_rank(DP)]


def main():
    global TP, DP
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2) if world == 4 else (1, 1), mesh_dim_names=("dp", "tp"))
    TP, DP = mesh.get_group("tp"), mesh.get_group("dp")
    torch.manual_seed(4)
    text, image = Tower(8), Tower(8)
    scale = nn.Parameter(torch.tensor(1.0))
    params = [*text.parameters(), *image.parameters(), scale]
    opt = torch.optim.AdamW(params, lr=1e-2)
    t, im = torch.randn(3, 4, 5, 8), torch.randn(3, 4, 6, 8)
    dp, r = dist.get_world_size(DP), dist.get_rank(DP)
    for step in range(3):
        n = 4 // dp
        mine = slice(r * n, (r + 1) * n)
        a, b = text(t[step, mine]), image(im[step, mine])
        labels = torch.arange(r * n, (r + 1) * n)
        loss = F.cross_entropy(scale.exp() * a @ Gather.apply(b).T, labels) / 2
        loss = loss + F.cross_entropy(scale.exp() * b @ Gather.apply(a).T, labels) / 2
        opt.zero_grad()
        loss.backward()
        for p in params:
            dist.all_reduce(p.grad, group=DP)
            p.grad /= dp
        opt.step()
    dist.destroy_process_group()


main()
