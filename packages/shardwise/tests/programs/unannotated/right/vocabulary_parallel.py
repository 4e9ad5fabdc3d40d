# Embedding and cross entropy over a vocabulary that is cut over the ranks. mesh: tp=2
import torch
import torch.distributed as dist
from torch import nn


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, start):
        largest = logits.max(-1).values
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        logits = logits - largest[:, None]
        mask = (target < start) | (target >= start + logits.shape[-1])
        local = (target - start).masked_fill(mask, 0)
        rows = torch.arange(len(target))
        chosen = logits[rows, local].masked_fill(mask, 0.0)
        dist.all_reduce(chosen)
        exp = logits.exp()
        total = exp.sum(-1)
        dist.all_reduce(total)
        ctx.save_for_backward(exp / total[:, None], mask, local)
        return total.log() - chosen

    @staticmethod
    def backward(ctx, grad):
        softmax, mask, local = ctx.saved_tensors
        out = softmax.clone()
        out[torch.arange(len(local)), local] -= 1.0 - mask.float()
        return out * grad[:, None], None, None


class Model(nn.Module):
    def __init__(self, vocabulary, dim):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.length = vocabulary // world
        self.start = rank * self.length
        self.table = nn.Parameter(torch.randn(vocabulary, dim)[self.start : self.start + self.length].clone())

    def forward(self, tokens, target):
        mask = (tokens < self.start) | (tokens >= self.start + self.length)
        found = nn.functional.embedding((tokens - self.start).masked_fill(mask, 0), self.table)
        h = Reduce.apply(found.masked_fill(mask[:, None], 0.0))
        return CrossEntropy.apply(torch.tanh(h.detach()) @ self.table.T, target, self.start) + h.square().mean(-1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model(12, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens, target = torch.randint(12, (16,)), torch.randint(12, (16,))
    for _ in range(2):
        loss = model(tokens, target).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
