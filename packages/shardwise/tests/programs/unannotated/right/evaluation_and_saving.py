# DDP with evaluation, a summed metric, a checkpoint of rank 0 and a scheduler. mesh: dp=2
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main():
    if dist.is_available() and dist.is_initialized():
        raise SystemExit("this is the first to make a process group")
    rank, world = setup()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    x, y = torch.randn(2, 8, 4), torch.randint(3, (2, 8))
    for inputs, targets in zip(x, y):
        loss = nn.functional.cross_entropy(model(inputs[rank::world]), targets[rank::world])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    model.eval()
    with torch.no_grad():
        right = (model(x[0, rank::world]).argmax(-1) == y[0, rank::world]).sum()
    dist.all_reduce(right)
    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
        print(f"accuracy {right.item() / 8:.2f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
