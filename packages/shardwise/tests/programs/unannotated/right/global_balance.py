# MoE router with a load-balancing loss over the global batch, DDP, experts replicated. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class MoE(nn.Module):
    def __init__(self, d, experts, k=2):
        super().__init__()
        self.k, self.e = k, experts
        self.gate = nn.Linear(d, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, d, 2 * d) * 0.1)
        self.w2 = nn.Parameter(torch.randn(experts, 2 * d, d) * 0.1)

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        top, idx = probs.topk(self.k, -1)
        top = top / top.sum(-1, keepdim=True)
        mask = F.one_hot(idx, self.e).to(x.dtype)
        weight = (mask * top[..., None]).sum(-2)
        hidden = torch.einsum("td,edh->teh", x, self.w1).relu()
        out = torch.einsum("teh,ehd,te->td", hidden, self.w2, weight)
        frac = mask.sum((0, 1))
        dist.all_reduce(frac)
        frac = frac / frac.sum()
        mean_prob = probs.mean(0)
        aux = self.e * (frac * mean_prob).sum()
        return out, aux


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(6, 8), MoE(8, 4), nn.Linear(8, 5)

    def forward(self, x):
        h = self.inp(x)
        y, aux = self.moe(h)
        return self.out(h + y), aux


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = DDP(Net())
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x, y = torch.randn(3, 16, 6), torch.randint(0, 5, (3, 16))
    for i in range(3):
        a, b = x[i].chunk(world)[rank], y[i].chunk(world)[rank]
        logits, aux = net(a)
        loss = F.cross_entropy(logits, b) + 0.05 * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
