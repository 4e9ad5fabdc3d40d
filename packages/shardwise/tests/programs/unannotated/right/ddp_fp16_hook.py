# DDP with torch's float16 hook, branches that a batch leaves out, a momentum. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.ReLU())
        self.left = nn.Linear(12, 2)
        self.right = nn.Linear(12, 2)

    def forward(self, x, head):
        h = self.trunk(x)
        return self.left(h) if head == "left" else self.right(h)


def run(rank, world):
    torch.manual_seed(1234)
    ddp = DDP(TwoHeads(), find_unused_parameters=True)
    ddp.register_comm_hook(state=dist.group.WORLD, hook=default_hooks.fp16_compress_hook)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    g = torch.Generator().manual_seed(99)
    for it in range(4):
        x = torch.randn(12, 6, generator=g)
        y = torch.randint(0, 2, (12,), generator=g)
        xs, ys = x.tensor_split(world)[rank], y.tensor_split(world)[rank]
        head = "left" if it % 2 == 0 else "right"
        opt.zero_grad()
        loss = F.cross_entropy(ddp(xs, head), ys, label_smoothing=0.1)
        loss.backward()
        opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"[{it}] {head:>5} loss={shown.item() / world:.3f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
