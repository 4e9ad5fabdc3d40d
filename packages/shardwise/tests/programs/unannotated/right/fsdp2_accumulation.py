# FSDP2 with gradient accumulation, mixed precision and resharding options. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

MICRO = 2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model[2], mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(2, MICRO, 8, 6, generator=torch.Generator().manual_seed(3))
    for batch in data:
        for micro, x in enumerate(batch):
            model.set_requires_gradient_sync(micro == MICRO - 1)
            loss = model(x[rank::world]).float().square().mean() / MICRO
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
