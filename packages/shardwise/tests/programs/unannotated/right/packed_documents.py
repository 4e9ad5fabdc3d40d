# Packed documents with cu_seqlens that every rank counts from 0, tokens counted globally. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def pack(docs):
    lens = torch.tensor([len(d) for d in docs])
    cu = torch.cat([torch.zeros(1, dtype=torch.long), lens.cumsum(0)])
    return torch.cat(docs), cu


def doc_ids(cu):
    return torch.repeat_interleave(torch.arange(len(cu) - 1), cu.diff())


class PackedLM(nn.Module):
    def __init__(self, v=14, d=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(v, d), nn.Embedding(16, d)
        self.qkv, self.proj, self.head = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, v)

    def forward(self, ids, cu):
        doc = doc_ids(cu)
        pos = torch.arange(len(ids)) - cu[doc]
        x = self.tok(ids) + self.pos(pos)
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = (doc[:, None] == doc[None]) & (pos[:, None] >= pos[None])
        x = x + self.proj(F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0])
        return self.head(x), doc


def loss_sum(model, ids, cu):
    logits, doc = model(ids, cu)
    valid = doc[1:] == doc[:-1]
    per = F.cross_entropy(logits[:-1], ids[1:], reduction="none")
    return (per * valid).sum(), valid.sum()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = PackedLM()
    opt = torch.optim.AdamW(model.parameters(), lr=0.03)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 0.2, total_iters=3)
    g = torch.Generator().manual_seed(4)
    log = []
    for _ in range(3):
        docs = [torch.randint(0, 14, (int(n),), generator=g) for n in torch.randint(3, 12, (6,), generator=g)]
        per = len(docs) // world
        ids, cu = pack(docs[rank * per : (rank + 1) * per])
        s, n = loss_sum(model, ids, cu)
        n = n.clone()
        dist.all_reduce(n)
        (s / n).backward()
        grads = [p.grad for p in model.parameters()]
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        for gr, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
            gr.copy_(new)
        opt.step()
        sched.step()
        opt.zero_grad()
        t = s.detach().clone()
        dist.all_reduce(t)
        log.append((t / n).item())
    if rank == 0:
        print(*log)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
