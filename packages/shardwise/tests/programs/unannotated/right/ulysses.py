# Sequence parallelism by all-to-all over heads (Ulysses), with data parallelism and a cosine schedule. mesh: dp=2,sp=2
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh


class SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x: Tensor, scatter: int, gather: int):
        ctx.group, ctx.scatter, ctx.gather = group, scatter, gather
        n = dist.get_world_size(group)
        sent = [part.contiguous() for part in x.chunk(n, scatter)]
        got = [torch.empty_like(part) for part in sent]
        dist.all_to_all(got, sent, group=group) if dist.get_backend(group) != "gloo" else exchange(got, sent, group)
        return torch.cat(got, gather)

    @staticmethod
    def backward(ctx, grad):
        return None, SeqAllToAll.apply(ctx.group, grad, ctx.gather, ctx.scatter), None, None


def exchange(got, sent, group):
    flat_in, flat_out = torch.stack(sent), torch.empty_like(torch.stack(sent))
    dist.all_to_all_single(flat_out, flat_in, group=group)
    for mine, part in zip(got, flat_out):
        mine.copy_(part)


class Attention(nn.Module):
    def __init__(self, dim, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        parts = self.wqkv(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        q, k, v = (SeqAllToAll.apply(self.group, p, 2, 1).transpose(1, 2) for p in parts)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.wo(SeqAllToAll.apply(self.group, out, 1, 2).reshape(b, t, d))


class Model(nn.Module):
    def __init__(self, vocab, dim, length, mesh):
        super().__init__()
        self.sp = mesh["sp"]
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Parameter(torch.randn(length, dim) / dim)
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2)])
        self.attentions = nn.ModuleList([Attention(dim, 4, mesh.get_group("sp")) for _ in range(2)])
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        here = slice(self.sp.get_local_rank() * ids.shape[1], (self.sp.get_local_rank() + 1) * ids.shape[1])
        x = self.tok(ids) + self.pos[here]
        for norm, attention in zip(self.norms, self.attentions):
            x = x + attention(norm(x))
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    sp = 2 if world % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (world // sp, sp), mesh_dim_names=("dp", "sp"))
    torch.manual_seed(23)
    model = Model(24, 16, 8, mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 0.5 * (1 + math.cos(i / 10)))
    for step in range(3):
        text = torch.randint(24, (4, 9), generator=torch.Generator().manual_seed(step))
        ids, labels = text[:, :-1], text[:, 1:]
        ids, labels = (t.chunk(mesh["dp"].size())[mesh.get_local_rank("dp")] for t in (ids, labels))
        ids, labels = (t.chunk(sp, 1)[mesh.get_local_rank("sp")] for t in (ids, labels))
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        schedule.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if dist.get_rank() == 0:
            print(f"{step} {shown.item() / world:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
