# Fewer key and value heads than tensor-parallel ranks: pairs of ranks hold a copy. mesh: tp=4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

HEADS, KV, DIM, HD = 8, 2, 16, 4


class F_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class G_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class GQA(nn.Module):
    def __init__(self, seed):
        super().__init__()
        ws, rk = dist.get_world_size(), dist.get_rank()
        g = torch.Generator().manual_seed(seed)
        q = torch.randn(HEADS * HD, DIM, generator=g) * 0.2
        k = torch.randn(KV * HD, DIM, generator=g) * 0.2
        v = torch.randn(KV * HD, DIM, generator=g) * 0.2
        o = torch.randn(DIM, HEADS * HD, generator=g) * 0.2
        self.h = HEADS // ws
        self.kv = max(KV // ws, 1)
        first = rk * KV // ws
        self.wq = nn.Parameter(q.chunk(ws, 0)[rk].clone())
        self.wk = nn.Parameter(k[first * HD : (first + self.kv) * HD].clone())
        self.wv = nn.Parameter(v[first * HD : (first + self.kv) * HD].clone())
        self.wo = nn.Parameter(o.chunk(ws, 1)[rk].clone())
        self.copies = max(ws // KV, 1)
        self.group = None
        for i in range(KV if ws > 1 else 0):
            ranks = list(range(i * self.copies, (i + 1) * self.copies))
            group = dist.new_group(ranks)
            if rk in ranks:
                self.group = group

    def forward(self, x):
        x = F_.apply(x)
        b, t, _ = x.shape
        q = (x @ self.wq.T).view(b, t, self.h, HD).transpose(1, 2)
        k = (x @ self.wk.T).view(b, t, self.kv, HD).transpose(1, 2)
        v = (x @ self.wv.T).view(b, t, self.kv, HD).transpose(1, 2)
        k, v = (z.repeat_interleave(self.h // self.kv, 1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return G_.apply(y.transpose(1, 2).reshape(b, t, -1) @ self.wo.T)

    def sync_kv(self):
        if self.group is not None:
            for p in (self.wk, self.wv):
                dist.all_reduce(p.grad, group=self.group)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    emb, attn, head = nn.Embedding(11, DIM), GQA(9), nn.Linear(DIM, 11)
    params = [*emb.parameters(), *attn.parameters(), *head.parameters()]
    opt = torch.optim.SGD(params, lr=0.5)
    tok = torch.randint(0, 11, (3, 2, 7))
    out = []
    for t in tok:
        x = emb(t[:, :-1])
        x = x + attn(x)
        loss = F.cross_entropy(head(x).flatten(0, 1), t[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        attn.sync_kv()
        opt.step()
        out.append(loss.item())
    if dist.get_rank() == 0:
        print(*out)
    dist.destroy_process_group()


main()
