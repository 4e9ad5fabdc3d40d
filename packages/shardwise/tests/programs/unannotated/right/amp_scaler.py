# Autocast and GradScaler with DDP, gradient clipping after unscaling. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=128.0)
    x = torch.randn(8, 8)
    for _ in range(2):
        inputs = x.chunk(world)[rank].to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(inputs).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
