# Batch-hard triplets over embeddings gathered from all ranks, with gradients to one's own. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        g = torch.stack(grads)
        dist.all_reduce(g)
        return g[dist.get_rank()]


def batch_hard(e, labels, margin=0.3):
    d = torch.cdist(e, e)
    same = labels[:, None] == labels[None]
    positive = (d * same).amax(1)
    negative = d.masked_fill(same, float("inf")).amin(1)
    return F.relu(positive - negative + margin).mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(3, 12, 10), torch.randint(0, 4, (3, 12))
    for i in range(3):
        a, b = x[i].chunk(world)[rank], y[i].chunk(world)[rank]
        e = F.normalize(model(a))
        everyone = torch.cat(AllGather.apply(e))
        labels = [torch.zeros_like(b) for _ in range(world)]
        dist.all_gather(labels, b)
        loss = batch_hard(everyone, torch.cat(labels))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
