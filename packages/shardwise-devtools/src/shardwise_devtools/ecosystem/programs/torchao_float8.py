"""An MLP in float8 of torchao under FSDP2, which gathers weights in float8 too: two steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, precompute_float8_dynamic_scale_for_fsdp

dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 64, bias=False), nn.GELU(), nn.Linear(64, 32)) for _ in range(2)))
# The kernels of float8 are those of a GPU, and elsewhere their numbers come of ordinary ones.
convert_to_float8_training(model, config=Float8LinearConfig(enable_fsdp_float8_all_gather=True, emulate=True))
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(1))
for step in range(2):
    loss = model(data[step].chunk(size)[rank]).square().mean()
    loss.backward()
    optimizer.step()
    precompute_float8_dynamic_scale_for_fsdp(model)
    optimizer.zero_grad()
    print("step", step, loss.item())
