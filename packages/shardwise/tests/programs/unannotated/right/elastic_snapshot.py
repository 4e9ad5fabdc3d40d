# Snapshots and restarts: object collectives, an evaluation over all ranks, ZeRO's optimizer. mesh: dp=2
import io
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


@torch.no_grad()
def evaluate(model, x, y, rank, world):
    model.eval()
    mine = model(x[rank::world]).argmax(1)
    gathered = [None] * world
    dist.all_gather_object(gathered, (mine == y[rank::world]).sum().item())
    model.train()
    return sum(gathered) / len(x)


def snapshot(model, optimizer):
    optimizer.consolidate_state_dict(to=0)
    buffer = io.BytesIO()
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    box = [buffer.getvalue()]
    dist.broadcast_object_list(box, src=0)
    return box[0]


@record
def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    seed_everything(rank)
    model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3))
    seed_everything(40)
    ddp = DDP(model)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-2, parameters_as_bucket_view=True)
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(24, 5, generator=gen)
    y = (x.sum(1) > 0).long() + (x[:, 0] > 1).long()
    sampler = DistributedSampler(TensorDataset(x, y), shuffle=True, drop_last=True)
    loader = DataLoader(TensorDataset(x, y), batch_size=8 // world, sampler=sampler)
    saved = None
    for epoch in range(restarts, 2):
        sampler.set_epoch(epoch)
        if saved is not None:
            state = torch.load(io.BytesIO(saved), weights_only=True)
            ddp.load_state_dict(state["model"])
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(inputs), labels)
            loss.backward()
            optimizer.step()
        saved = snapshot(ddp, optimizer)
        accuracy = evaluate(ddp.module, x, y, rank, world)
        total = torch.tensor([p.square().sum() for p in ddp.parameters()]).sum()
        if rank == 0:
            print(f"epoch {epoch} accuracy {accuracy:.3f} squares {total:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
