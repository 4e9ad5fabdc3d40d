# Attention in tensor parallel with one merged weight for query, key and value, checkpointed. mesh: tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        total = grad.clone()
        dist.all_reduce(total)
        return total


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.clone()
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.heads, self.size = heads // world, dim // heads
        q, k, v = (w.chunk(world, 0)[rank] for w in torch.randn(3, dim, dim) / dim**0.5)
        self.qkv = nn.Parameter(torch.cat([q, k, v]))
        self.out = nn.Parameter((torch.randn(dim, dim) / dim**0.5).chunk(world, 1)[rank].clone())
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = Copy.apply(self.norm(x)) @ self.qkv.T
        q, k, v = (t.view(batch, length, self.heads, self.size).transpose(1, 2) for t in qkv.chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + Reduce.apply(y.transpose(1, 2).reshape(batch, length, -1) @ self.out.T)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.ModuleList([Attention(8, 4), Attention(8, 4)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    x = torch.randn(2, 6, 8)
    for _ in range(2):
        h = x
        for layer in layers:
            h = checkpoint(layer, h, use_reentrant=False)
        loss = h.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
