# Two towers, features gathered from all ranks with gradients for the own part, a learnt temperature. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(self, d, h=14, o=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, h), nn.SiLU(), nn.LayerNorm(h), nn.Linear(h, o, bias=False))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.item = Tower(9), Tower(7)
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, q, i):
        return self.query(q), self.item(i), self.log_scale.exp()


def gather_with_own_gradient(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach())
    parts[dist.get_rank()] = x
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = TwoTowers()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(6)
    for _ in range(3):
        q, i = torch.randn(8, 9, generator=g), torch.randn(8, 7, generator=g)
        a, b, scale = model(q.chunk(world)[rank], i.chunk(world)[rank])
        every_a, every_b = gather_with_own_gradient(a), gather_with_own_gradient(b)
        labels = torch.arange(len(every_a))
        logits = scale * every_a @ every_b.T
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        opt.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            dist.all_reduce(p.grad)
            if name == "log_scale":
                p.grad /= world
        opt.step()
    print("RESULT", loss.item(), sum(p.abs().sum().item() for p in model.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
