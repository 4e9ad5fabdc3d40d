# FSDP2 with autocast, GradScaler, values clipped by element, an average of the shards. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard


class Encoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.lift = nn.Linear(3, width)
        self.layers = nn.ModuleList(nn.GRUCell(width, width) for _ in range(2))
        self.read = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.tanh(self.lift(x))
        state = torch.zeros_like(h)
        for layer in self.layers:
            state = layer(h, state)
        return self.read(state)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(18)
    model = Encoder()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(
        model, offload_policy=CPUOffloadPolicy(pin_memory=False) if torch.cuda.is_available() else OffloadPolicy()
    )
    ema = [p.detach().to_local().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    gen = torch.Generator().manual_seed(2)
    for step in range(4):
        x, y = torch.randn(8, 3, generator=gen), torch.randn(8, 1, generator=gen)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        loss = nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        with torch.no_grad():
            for average, p in zip(ema, model.parameters()):
                average.lerp_(p.to_local(), 0.1)
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"{step} {shown.item() / world:.3f} scale {scaler.get_scale():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
