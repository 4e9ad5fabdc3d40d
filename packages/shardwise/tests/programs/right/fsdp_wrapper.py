"""The older FullyShardedDataParallel wrapper, each block on its own, with no_sync and its own clipping."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

import shardwise as spmd
from shardwise import P, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


def wrap(module):
    return FullyShardedDataParallel(
        module,
        process_group=mesh.get_group("dp"),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )


with spmd.set_current_mesh(mesh):
    model = wrap(nn.Sequential(nn.Embedding(32, 16), wrap(nn.Linear(16, 16)), nn.ReLU(), wrap(nn.Linear(16, 32))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        tokens = spmd.assert_type(torch.randint(32, (2, 9)), {"dp": S(0)})
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
