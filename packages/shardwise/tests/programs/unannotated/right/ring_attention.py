# Ring attention: blocks of keys and values travel around the ranks, the softmax is summed up on the way. mesh: cp=2
import torch
import torch.distributed as dist
from torch import nn


def shift(x, step):
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return x
    x = x.contiguous()
    out = torch.empty_like(x)
    ops = [
        dist.P2POp(dist.isend, x, (rank + step) % world),
        dist.P2POp(dist.irecv, out, (rank - step) % world),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return shift(x, 1)

    @staticmethod
    def backward(ctx, grad):
        return shift(grad, -1)


def ring_attention(q, k, v):
    total, weight = torch.zeros_like(q), q.new_zeros(*q.shape[:-1], 1)
    largest = q.new_full((*q.shape[:-1], 1), -1e30)
    for hop in range(dist.get_world_size()):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        now = torch.maximum(largest, scores.amax(-1, keepdim=True)).detach()
        scale = (largest - now).exp()
        exp = (scores - now).exp()
        total = total * scale + exp @ v
        weight = weight * scale + exp.sum(-1, keepdim=True)
        largest = now
        if hop < dist.get_world_size() - 1:
            k, v = Shift.apply(k), Shift.apply(v)
    return total / weight


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return x + ring_attention(*(3 * self.qkv(self.norm(x))).chunk(3, -1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(Attention(6), Attention(6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 8, 6)
    for _ in range(2):
        loss = model(x.chunk(world, 1)[rank]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.div_(world)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
