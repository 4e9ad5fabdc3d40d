# DDP with gradient accumulation: no_sync for all micro-batches but the last. mesh: dp=2
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(ACCUMULATE, 8, 6, generator=generator)
        y = torch.randint(3, (ACCUMULATE, 8), generator=generator)
        for micro in range(ACCUMULATE):
            inputs = x[micro].chunk(world)[rank]
            targets = y[micro].chunk(world)[rank]
            last = micro == ACCUMULATE - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(inputs), targets) / ACCUMULATE
                loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
