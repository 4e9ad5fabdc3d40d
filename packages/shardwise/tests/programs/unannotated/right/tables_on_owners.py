# DLRM: whole embedding tables on their owners, dense towers on all ranks. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PooledAllToAll(torch.autograd.Function):
    """[tables, world * b, d] of own tables -> [all tables, b, d] of own rows."""

    @staticmethod
    def forward(ctx, pooled):
        world = dist.get_world_size()
        t, rows, d = pooled.shape
        send = pooled.view(t, world, rows // world, d).transpose(0, 1).contiguous()
        out = torch.empty_like(send)
        dist.all_to_all_single(out, send)
        return out.view(world * t, rows // world, d)

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size()
        tables, b, d = grad.shape
        send = grad.contiguous().view(world, tables // world, b, d)
        out = torch.empty_like(send)
        dist.all_to_all_single(out, send)
        return out.transpose(0, 1).reshape(tables // world, world * b, d)


class Dense(nn.Module):
    def __init__(self, features, tables, dim):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, dim))
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, emb):
        x = self.bottom(x)
        all_ = torch.cat([x.unsqueeze(1), emb.transpose(0, 1)], dim=1)
        inter = torch.bmm(all_, all_.transpose(1, 2))
        i, j = torch.tril_indices(all_.shape[1], all_.shape[1], offset=-1)
        return self.top(torch.cat([x, inter[:, i, j]], dim=1)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    n_tables, dim, hashes = 4, 8, [7, 11, 5, 9]
    torch.manual_seed(10)
    weights = [torch.randn(h, dim) * 0.1 for h in hashes]
    mine = list(range(rank * n_tables // world, (rank + 1) * n_tables // world))
    tables = nn.ModuleList([nn.EmbeddingBag.from_pretrained(weights[t], freeze=False, mode="sum") for t in mine])
    dense = DDP(Dense(6, n_tables, dim))
    sparse_opt = torch.optim.Adagrad(tables.parameters(), lr=0.1)
    dense_opt = torch.optim.Adam(dense.parameters(), lr=0.01)
    batch = 12
    for step in range(3):
        x = torch.randn(batch, 6)
        ids = torch.stack([torch.randint(0, h, (batch, 3)) for h in hashes])
        click = (torch.rand(batch) < 0.4).float()
        lo, hi = rank * batch // world, (rank + 1) * batch // world
        pooled = torch.stack([table(ids[t]) for t, table in zip(mine, tables)])
        emb = PooledAllToAll.apply(pooled)
        logits = dense(x[lo:hi], emb)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, click[lo:hi])
        dense_opt.zero_grad()
        sparse_opt.zero_grad()
        loss.backward()
        for p in tables.parameters():
            p.grad.div_(world)
        dense_opt.step()
        sparse_opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(step, (shown / world).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
