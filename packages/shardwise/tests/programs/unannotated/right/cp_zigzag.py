# Context parallelism with zigzag chunks and gathered keys and values, as llama 3 does it. mesh: cp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather


def zigzag(x, dim, rank, world):
    chunks = x.chunk(2 * world, dim=dim)
    return torch.cat([chunks[rank], chunks[2 * world - 1 - rank]], dim=dim)


def unzigzag(parts, dim):
    world = len(parts)
    chunks = [None] * (2 * world)
    for rank, part in enumerate(parts):
        first, second = part.chunk(2, dim=dim)
        chunks[rank], chunks[2 * world - 1 - rank] = first, second
    return torch.cat(chunks, dim=dim)


def rope(x, positions):
    half = x.shape[-1] // 2
    freqs = positions[:, None].float() * (100.0 ** (-torch.arange(half).float() / half))[None]
    cos, sin = freqs.cos(), freqs.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class CPAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.kv_proj = nn.Linear(dim, 2 * dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x, positions):
        b, s, d = x.shape
        q = self.q_proj(x).view(b, s, self.heads, -1).transpose(1, 2)
        k, v = self.kv_proj(x).view(b, s, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rope(q, positions), rope(k, positions)
        if dist.get_world_size() > 1:
            k = unzigzag(all_gather(k.contiguous()), dim=2)
            v = unzigzag(all_gather(v.contiguous()), dim=2)
        mask = positions[:, None] >= torch.arange(k.shape[2])[None, :]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(b, s, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attn = CPAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, positions):
        x = x + self.attn(self.attn_norm(x), positions)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(self, vocab=32, dim=16, heads=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(2))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens, positions):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, positions)
        return self.lm_head(x)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    generator = torch.Generator().manual_seed(2)
    for step in range(3):
        tokens = torch.randint(0, 32, (2, 17), generator=generator)
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        position_ids = torch.arange(16)
        inputs, labels = zigzag(inputs, 1, rank, world), zigzag(labels, 1, rank, world)
        position_ids = zigzag(position_ids, 0, rank, world)
        logits = model(inputs, position_ids)
        loss = F.cross_entropy(logits.reshape(-1, 32), labels.reshape(-1), reduction="sum") / tokens[:, 1:].numel()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()
        report = loss.detach().clone()
        dist.all_reduce(report)
        if rank == 0:
            print(f"step {step} loss {report.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
