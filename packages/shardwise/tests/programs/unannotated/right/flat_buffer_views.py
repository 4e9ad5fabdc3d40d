# Flat buffers of weights and gradients; the optimizer has views of parts of every parameter. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 3))

parameters = list(model.parameters())
count = sum(p.numel() for p in parameters)
share = -(-count // world)
weights, gradients = torch.zeros(share * world), torch.zeros(share * world)
mine = slice(rank * share, (rank + 1) * share)
shards, at = [], 0
for p in parameters:
    first, at = at, at + p.numel()
    weights[first:at].copy_(p.detach().view(-1))
    p.data = weights[first:at].view_as(p)
    p.main_grad = gradients[first:at].view_as(p)
    low, high = max(first, mine.start), min(at, mine.stop)
    if low < high:
        part = slice(low - first, high - first)
        shard = p.detach().view(-1)[part]
        shards.append((shard, p.main_grad.view(-1)[part]))

    def add(p=p):
        def hook(p):
            p.main_grad.add_(p.grad)
            p.grad = None

        return hook

    p.register_post_accumulate_grad_hook(add())

optimizer = torch.optim.AdamW([shard for shard, _ in shards], lr=1e-2)
data = torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(1))
target = torch.randn(3, 8, 3, generator=torch.Generator().manual_seed(2))
for step in range(3):
    gradients.zero_()
    x, y = data[step].chunk(world)[rank], target[step].chunk(world)[rank]
    F.mse_loss(model(x), y).backward()
    own = torch.empty(share)
    dist.reduce_scatter_tensor(own, gradients / world)
    gradients[mine] = own
    for shard, gradient in shards:
        shard.grad = gradient
    optimizer.step()
    dist.all_gather_into_tensor(weights, weights[mine].clone())
