# mp.spawn of a rank per GPU: SyncBatchNorm under DDP, and parameters of the head by the older FSDP. mesh: dp=2
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def build(rank):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    body = nn.SyncBatchNorm.convert_sync_batchnorm(body).to(rank)
    head = FSDP(nn.Linear(16, 3).to(rank), use_orig_params=True)
    return DDP(body, device_ids=[rank]), head


def train(rank, world_size, global_batch):
    setup(rank, world_size)
    body, head = build(rank)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        images, labels = torch.randn(global_batch, 1, 4, 4, generator=generator), torch.arange(global_batch) % 3
        own = slice(rank * global_batch // world_size, (rank + 1) * global_batch // world_size)
        loss = F.cross_entropy(head(body(images[own].to(rank))), labels[own].to(rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = torch.cuda.device_count()
    mp.spawn(train, args=(gpus, 8), nprocs=gpus, join=True)
