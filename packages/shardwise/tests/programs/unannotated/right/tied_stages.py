# Stages whose first and last share an embedding; sends and receives are autograd functions. mesh: pp=4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

_EMBEDDING_GROUP = None


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dst):
        ctx.dst, ctx.shape = dst, x.shape
        dist.send(x.contiguous(), dst)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        g = torch.empty(ctx.shape)
        dist.recv(g, ctx.dst)
        return g, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, shape, src):
        ctx.src = src
        x = torch.empty(shape)
        dist.recv(x, src)
        return x

    @staticmethod
    def backward(ctx, g):
        dist.send(g.contiguous(), ctx.src)
        return torch.zeros(()), None, None


class Part(nn.Module):
    def __init__(self, rank, size, vocab=24, d=12, layers=4):
        super().__init__()
        self.rank, self.size, self.d = rank, size, d
        torch.manual_seed(0)
        word = nn.Embedding(vocab, d)
        blocks = [
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(layers)
        ]
        lo, hi = rank * layers // size, (rank + 1) * layers // size
        self.blocks = nn.ModuleList(blocks[lo:hi])
        self.anchor = torch.zeros((), requires_grad=True)
        if rank in (0, size - 1):
            self.word = word

    def forward(self, tokens, targets):
        if self.rank == 0:
            x = self.word(tokens)
        else:
            x = Recv.apply(self.anchor, (*tokens.shape, self.d), self.rank - 1)
        for b in self.blocks:
            x = x + b(x)
        if self.rank < self.size - 1:
            return Send.apply(x, self.rank + 1)
        return F.cross_entropy(F.linear(x, self.word.weight).flatten(0, 1), targets.flatten())


def main():
    global _EMBEDDING_GROUP
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = sorted({0, size - 1})
    _EMBEDDING_GROUP = dist.new_group(ranks)
    part = Part(rank, size)
    opt = torch.optim.SGD(part.parameters(), lr=0.2, momentum=0.9)
    for step in range(3):
        torch.manual_seed(step)
        data = torch.randint(0, 24, (4, 9))
        opt.zero_grad()
        out = part(data[:, :-1], data[:, 1:])
        out.backward()
        if rank in ranks:
            dist.all_reduce(part.word.weight.grad, group=_EMBEDDING_GROUP)
        opt.step()
        loss = out.detach().clone()
        dist.broadcast(loss, size - 1)
        if rank == 0:
            print(f"{step} {loss.item():.6f}")


main()
