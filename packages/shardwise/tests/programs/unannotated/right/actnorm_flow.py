# A flow whose ActNorm starts from the first batch of all ranks. mesh: dp=2
import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.register_buffer("initialised", torch.tensor(False))

    @torch.no_grad()
    def initialise(self, x):
        n = torch.tensor([float(x.shape[0])])
        stats = torch.cat([n, x.sum(0), x.square().sum(0)])
        dist.all_reduce(stats)
        count, s, ss = stats.split([1, x.shape[1], x.shape[1]])
        mean = s / count
        var = ss / count - mean.square()
        self.loc.copy_(-mean)
        self.log_scale.copy_(-0.5 * torch.log(var + 1e-6))
        self.initialised.fill_(True)

    def forward(self, x):
        return (x + self.loc) * self.log_scale.exp(), self.log_scale.sum().expand(x.shape[0])


class Coupling(nn.Module):
    def __init__(self, dim, hidden=16, flip=False):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        log_s, t = self.net(a).chunk(2, dim=1)
        log_s = torch.tanh(log_s)
        b = b * log_s.exp() + t
        out = torch.cat([b, a] if self.flip else [a, b], dim=1)
        return out, log_s.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=4, depth=3):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [ActNorm(dim), Coupling(dim, flip=i % 2 == 1)]
        self.layers = nn.ModuleList(layers)

    def data_init(self, x):
        with torch.no_grad():
            for layer in self.layers:
                if isinstance(layer, ActNorm):
                    layer.initialise(x)
                x, _ = layer(x)

    def forward(self, x):
        logdet = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        logp = -0.5 * x.square().sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi)
        return logp + logdet


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    flow = Flow()
    data = torch.randn(48, 4) @ torch.randn(4, 4) + 3.0
    flow.data_init(data[:16][rank::world])
    model = DDP(flow)
    opt = torch.optim.Adamax(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3)
    for step in range(3):
        x = data[16 * step : 16 * (step + 1)][rank::world]
        noise = torch.rand(16, 4)[rank::world]
        nll = -model(x + noise / 256).mean()
        opt.zero_grad()
        nll.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        bpd = nll.detach() / (4 * math.log(2))
        dist.all_reduce(bpd)
        bpd /= world
        if rank == 0:
            print(step, round(bpd.item(), 4))
    dist.destroy_process_group()
