# A wrapper's own gradient buffer (main_grad), bfloat16 weights, a distributed optimizer. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn


class GradBufferDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.world = dist.get_world_size()
        self.params = [p for p in module.parameters() if p.requires_grad]
        total = sum(p.numel() for p in self.params)
        self.padded = -(-total // self.world) * self.world
        self.grad_data = torch.zeros(self.padded, dtype=torch.float32)
        self.ranges, at = {}, 0
        for p in self.params:
            p.main_grad = self.grad_data[at : at + p.numel()].view(p.shape)
            self.ranges[p] = (at, at + p.numel())
            at += p.numel()
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(self.hook(p))
            p.accumulator = node

    def hook(self, p):
        def accumulate(*unused):
            if p.grad is not None:
                p.main_grad.add_(p.grad.data)
            p.grad = None

        return accumulate

    def forward(self, *args):
        return self.module(*args)

    def zero_grad_buffer(self):
        self.grad_data.zero_()

    def finish_grad_sync(self):
        self.grad_data *= 1.0 / self.world
        shard = self.grad_data.view(self.world, -1)[dist.get_rank()]
        out = torch.empty_like(shard)
        dist.reduce_scatter_tensor(out, self.grad_data)
        shard.copy_(out)
        return shard


class DistributedOptimizer:
    def __init__(self, ddp, lr):
        self.ddp, self.rank = ddp, dist.get_rank()
        flat = torch.zeros(ddp.padded)
        for p, (start, end) in ddp.ranges.items():
            flat[start:end] = p.detach().float().flatten()
        self.master = nn.Parameter(flat.view(ddp.world, -1)[self.rank].clone())
        self.inner = torch.optim.AdamW([self.master], lr=lr, eps=1e-6)

    def step(self):
        self.master.grad = self.ddp.finish_grad_sync()
        self.inner.step()
        gathered = torch.empty(self.ddp.padded)
        dist.all_gather_into_tensor(gathered, self.master.detach())
        for p, (start, end) in self.ddp.ranges.items():
            p.data.copy_(gathered[start:end].view(p.shape))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 24)
        self.down = nn.Linear(24, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(x + self.down(nn.functional.silu(self.up(x))))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(77)
    ddp = GradBufferDDP(MLP().to(torch.bfloat16))
    optimizer = DistributedOptimizer(ddp, lr=1e-2)
    gen = torch.Generator().manual_seed(5)
    for step in range(3):
        x = torch.randn(16, 8, generator=gen).to(torch.bfloat16)
        y = torch.randint(4, (16,), generator=gen)
        ddp.zero_grad_buffer()
        shown = torch.zeros(1)
        for micro in range(2):
            mx, my = x.chunk(2)[micro].chunk(world)[rank], y.chunk(2)[micro].chunk(world)[rank]
            loss = nn.functional.cross_entropy(ddp(mx).float(), my)
            (loss / 2).backward()
            shown += loss.detach() / 2 / world
        optimizer.step()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step}: {shown.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
