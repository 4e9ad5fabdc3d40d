# A data parallel wrapper of the program's own: hooks fill buckets that are summed meanwhile. mesh: dp=4
import torch
import torch.distributed as dist
from torch import nn


class Bucket:
    def __init__(self, params):
        self.params = params
        self.buffer = torch.zeros(sum(p.numel() for p in params))
        self.offsets, n = {}, 0
        for p in params:
            self.offsets[p] = n
            n += p.numel()
        self.reset()

    def reset(self):
        self.missing, self.work = set(self.params), None


class OverlappedDDP(nn.Module):
    def __init__(self, module, bucket_cap=600):
        super().__init__()
        self.module = module
        self.world = dist.get_world_size()
        self.buckets, current, size = [], [], 0
        for p in reversed(list(module.parameters())):
            dist.broadcast(p.data, src=0)
            current.append(p)
            size += p.numel()
            if size >= bucket_cap:
                self.buckets.append(Bucket(current))
                current, size = [], 0
        if current:
            self.buckets.append(Bucket(current))
        self.where = {p: b for b in self.buckets for p in b.params}
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self._ready)
        self.sync = True

    def _ready(self, p):
        if not self.sync:
            return
        b = self.where[p]
        o = b.offsets[p]
        b.buffer[o : o + p.numel()].copy_(p.grad.reshape(-1))
        b.missing.discard(p)
        if not b.missing:
            b.buffer.div_(self.world)
            b.work = dist.all_reduce(b.buffer, async_op=True)

    def finish(self):
        for b in self.buckets:
            b.work.wait()
            for p in b.params:
                o = b.offsets[p]
                p.grad.copy_(b.buffer[o : o + p.numel()].view_as(p))
            b.reset()

    def forward(self, *a):
        return self.module(*a)


class MLPMixer(nn.Module):
    def __init__(self, patches=9, d=12):
        super().__init__()
        self.stem = nn.Linear(16, d)
        self.token = nn.Sequential(nn.Linear(patches, 16), nn.GELU(), nn.Linear(16, patches))
        self.channel = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 24), nn.GELU(), nn.Linear(24, d))
        self.head = nn.Linear(d, 7)

    def forward(self, x):
        h = self.stem(x)
        h = h + self.token(h.transpose(1, 2)).transpose(1, 2)
        h = h + self.channel(h)
        return self.head(h.mean(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = OverlappedDDP(MLPMixer())
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=1e-2)
    gen = torch.Generator().manual_seed(0)
    for step in range(3):
        opt.zero_grad(set_to_none=False)
        x, y = torch.randn(16, 9, 16, generator=gen), torch.randint(0, 7, (16,), generator=gen)
        lo = rank * 16 // world
        halves = list(zip(x[lo : lo + 16 // world].chunk(2), y[lo : lo + 16 // world].chunk(2)))
        tot = 0.0
        for i, (a, b) in enumerate(halves):
            model.sync = i == len(halves) - 1
            loss = nn.functional.cross_entropy(model(a), b) / len(halves)
            loss.backward()
            tot += loss.detach()
        model.finish()
        opt.step()
        dist.all_reduce(tot, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step {step}: {tot.item():.6f}")
