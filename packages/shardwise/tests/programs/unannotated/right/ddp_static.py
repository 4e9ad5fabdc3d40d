# DDP with a static graph and reentrant checkpoints, a shared weight, buffers broadcast, RMSprop. mesh: dp=2
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint_sequential


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 10) / 3)
        self.inner = nn.Sequential(*[nn.Sequential(nn.Linear(10, 10), nn.Tanh()) for _ in range(4)])
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("running", torch.zeros(10))

    def forward(self, x):
        h = x @ self.weight
        h = checkpoint_sequential(self.inner, 2, h, use_reentrant=True)
        if self.training:
            self.calls += 1
            mean = h.detach().mean(0)
            if dist.is_initialized():
                dist.all_reduce(mean)
                mean /= dist.get_world_size()
            self.running.lerp_(mean, 0.1)
        return (h - self.running) @ self.weight.T


if __name__ == "__main__":
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    dist.init_process_group("gloo", init_method="env://")
    world = dist.get_world_size()
    torch.manual_seed(local_rank + 100)
    model = AutoEncoder()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
    net = DDP(model, static_graph=True, broadcast_buffers=True, bucket_cap_mb=1)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for it in range(3):
        batch = torch.randn(12, 6, generator=torch.Generator().manual_seed(it))
        part = batch.chunk(world)[local_rank].requires_grad_()
        optimizer.zero_grad()
        loss = (net(part) - part.detach()).pow(2).mean()
        loss.backward()
        optimizer.step()
        report = [loss.detach()]
        dist.all_reduce_coalesced(report)
        if local_rank == 0:
            print(f"{it}: {report[0] / world:.4f} {model.running.abs().sum():.4f}")
    dist.destroy_process_group()
