# Two tasks a step over DDP, their losses weighted by learned uncertainties; one backward for both. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.GELU())
        self.depth, self.seg = nn.Linear(16, 1), nn.Linear(16, 4)
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, x, depth, seg, valid):
        h = self.trunk(x)
        count = valid.sum()
        dist.all_reduce(count)
        d = ((self.depth(h).squeeze(-1) - depth).abs() * valid).sum() * dist.get_world_size() / count
        s = F.cross_entropy(self.seg(h), seg)
        losses = torch.stack([d, s])
        return (losses * torch.exp(-self.log_vars) + self.log_vars).sum(), losses.detach()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DDP(MultiTask())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    x, depth = torch.randn(3, 8, 6), torch.rand(3, 8)
    seg, valid = torch.randint(0, 4, (3, 8)), (torch.rand(3, 8) > 0.4).float()
    for i in range(3):
        part = [t[i].chunk(world)[rank] for t in (x, depth, seg, valid)]
        loss, parts = model(*part)
        opt.zero_grad()
        loss.backward()
        opt.step()
        dist.all_reduce(parts)
        parts /= world
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
