# Sequence parallelism in two levels: Ulysses within groups of two, keys gathered across groups. mesh: cp=4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

INNER = OUTER = None


class AllToAll(torch.autograd.Function):
    """[B, T/n, H, D] -> [B, T, H/n, D] over a group, or back."""

    @staticmethod
    def forward(ctx, x, scatter, gather, group):
        ctx.args = scatter, gather, group
        n = dist.get_world_size(group)
        parts = [p.contiguous() for p in x.chunk(n, scatter)]
        outs = [torch.empty_like(parts[0]) for _ in range(n)]
        dist.all_gather(outs, parts[0], group=group) if n == 1 else exchange(outs, parts, group)
        return torch.cat(outs, gather)

    @staticmethod
    def backward(ctx, g):
        scatter, gather, group = ctx.args
        return AllToAll.apply(g, gather, scatter, group), None, None, None


def exchange(outs, parts, group):
    flat = torch.stack(parts)
    got = torch.empty_like(flat)
    dist.all_to_all_single(got, flat, group=group)
    for out, one in zip(outs, got):
        out.copy_(one)


class GatherKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        outs = [torch.empty_like(x) for _ in range(dist.get_world_size(OUTER))]
        dist.all_gather(outs, x.contiguous(), group=OUTER)
        return torch.cat(outs, 1)

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size(OUTER)
        out = torch.empty_like(g.chunk(n, 1)[0].contiguous())
        dist.reduce_scatter(out, [c.contiguous() for c in g.chunk(n, 1)], group=OUTER)
        return out


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, D // self.h).unbind(2)
        q, k, v = (AllToAll.apply(t, 2, 1, INNER) for t in (q, k, v))
        k, v = GatherKV.apply(k), GatherKV.apply(v)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        start = dist.get_rank(OUTER) * q.size(2)
        mask = torch.arange(k.size(2))[None] <= (torch.arange(q.size(2)) + start)[:, None]
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        return self.o(AllToAll.apply(o, 1, 2, INNER).reshape(B, T, D))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.att = nn.Embedding(11, 8), nn.LayerNorm(8), Attention(8, 2)
        self.head = nn.Linear(8, 11)

    def forward(self, ids):
        h = self.emb(ids)
        return self.head(h + self.att(self.norm(h)))


def main():
    global INNER, OUTER
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    inner = min(2, world)
    for start in range(0, world, inner):
        group = dist.new_group(list(range(start, start + inner)))
        INNER = group if start <= rank < start + inner else INNER
    for start in range(inner):
        group = dist.new_group(list(range(start, world, inner)))
        OUTER = group if rank % inner == start else OUTER
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    tokens = torch.randint(0, 11, (3, 2, 17))
    for batch in tokens:
        ids = batch[:, :-1].chunk(world, 1)[rank]
        labels = batch[:, 1:].chunk(world, 1)[rank]
        loss = F.cross_entropy(net(ids).flatten(0, 1), labels.flatten())
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    dist.destroy_process_group()


main()
