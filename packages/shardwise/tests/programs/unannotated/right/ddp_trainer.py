# DDP with a loader, autocast, no_sync, checkpointed blocks, an average of weights, snapshots. mesh: dp=2
import argparse
import contextlib
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sines(Dataset):
    def __init__(self, length=32):
        generator = torch.Generator().manual_seed(17)
        self.x = torch.randn(length, 8, generator=generator)
        self.y = torch.sin(self.x.sum(1, keepdim=True))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList([Residual(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class Trainer:
    def __init__(self, args, rank, world_size):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        self.model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        rest = [p for p in self.model.parameters() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=args.lr
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=10)
        self.ema = AveragedModel(self.model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        data = Sines()
        self.sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True, seed=3)
        self.loader = DataLoader(data, batch_size=args.batch_size // world_size, sampler=self.sampler)
        self.epochs_run = 0

    def save(self, path):
        if self.rank == 0:
            torch.save(
                {
                    "model": self.model.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "epoch": self.epochs_run,
                },
                path,
            )
        dist.barrier()

    def load(self, path):
        state = torch.load(path, map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_run = state["epoch"]
        dist.barrier()

    def epoch(self, number):
        self.sampler.set_epoch(number)
        total = torch.zeros(1)
        for i, (x, y) in enumerate(self.loader):
            boundary = (i + 1) % self.args.accumulate == 0
            with contextlib.nullcontext() if boundary else self.model.no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.amp):
                    loss = nn.functional.mse_loss(self.model(x).float(), y)
                (loss / self.args.accumulate).backward()
            total += loss.detach()
            if boundary:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad(set_to_none=True)
                self.ema.update_parameters(self.model.module)
        dist.all_reduce(total, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        total /= dist.get_world_size() * len(self.loader)
        if self.rank == 0:
            print(f"epoch {number} | loss {total.item():.4f} | lr {self.schedule.get_last_lr()[0]:.5f}", flush=True)
        self.epochs_run = number + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    snapshot = os.path.join(folder[0], "snapshot.pt")
    trainer = Trainer(args, rank, world_size)
    for number in range(trainer.epochs_run, args.epochs):
        if number == 1:
            trainer.load(snapshot)
        trainer.epoch(number)
        trainer.save(snapshot)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
