"""An MLP under fairscale's ShardedDataParallel, whose optimizer OSS steps a part of the parameters on each rank."""

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim.oss import OSS
from torch import nn

dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = OSS(model.parameters(), optim=torch.optim.AdamW, lr=1e-3)
model = ShardedDataParallel(model, optimizer)
data = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))
for step in range(2):
    model.zero_grad()
    loss = model(data[step].chunk(size)[rank]).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item())
