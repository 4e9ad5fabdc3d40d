# Experts in a dataclass of tensors, tokens by all-to-all. mesh: ep=2
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnn

EXPERTS, D, H = 4, 6, 10


@dataclass
class Weights:
    router: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor

    def all(self):
        return [self.router, self.up, self.down]


def make(rank, world):
    gen = torch.Generator().manual_seed(12)
    router = torch.randn(D, EXPERTS, generator=gen)
    up = torch.randn(EXPERTS, D, H, generator=gen) * 0.4
    down = torch.randn(EXPERTS, H, D, generator=gen) * 0.4
    per = EXPERTS // world
    own = slice(rank * per, (rank + 1) * per)
    return Weights(router.requires_grad_(), up[own].clone().requires_grad_(), down[own].clone().requires_grad_())


def exchange(x, send, receive):
    out = torch.empty(sum(receive), x.shape[1])
    return dnn.all_to_all_single(out, x, output_split_sizes=receive, input_split_sizes=send)


def moe(w, x, rank, world):
    probs = (x @ w.router).softmax(-1)
    gate, expert = probs.max(-1)
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=EXPERTS)
    theirs = torch.empty_like(counts)
    per = EXPERTS // world
    dist.all_to_all_single(theirs, counts)
    send = counts.view(world, per).sum(1).tolist()
    receive = theirs.view(world, per).sum(1).tolist()
    got = exchange(x[order], send, receive)
    labels = torch.arange(per).repeat(world).repeat_interleave(theirs)
    result = torch.zeros_like(got)
    for e in range(per):
        rows = (labels == e).nonzero().squeeze(-1)
        result = result.index_add(0, rows, torch.relu(got[rows] @ w.up[e]) @ w.down[e])
    back = exchange(result, receive, send)
    out = torch.zeros_like(x).index_copy(0, order, back)
    return x + out * gate[:, None]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    w = make(rank, world)
    opt = torch.optim.SGD(w.all(), lr=0.2)
    gen = torch.Generator().manual_seed(13)
    for step in range(3):
        x, y = torch.randn(12, D, generator=gen), torch.randn(12, D, generator=gen)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        loss = (moe(w, x, rank, world) - y).square().sum() / 12
        opt.zero_grad()
        loss.backward()
        dist.all_reduce(w.router.grad)
        opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step} loss {shown.item():.6f}")
    dist.destroy_process_group()


main()
