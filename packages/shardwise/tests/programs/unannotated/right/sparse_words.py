# Skip-grams with sparse embeddings: rows that ranks have touched are gathered. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SkipGram(nn.Module):
    def __init__(self, vocab=20, dim=6):
        super().__init__()
        self.inp = nn.Embedding(vocab, dim, sparse=True)
        self.out = nn.Embedding(vocab, dim, sparse=True)
        nn.init.uniform_(self.inp.weight, -0.5 / dim, 0.5 / dim)
        nn.init.normal_(self.out.weight, std=0.1)

    def forward(self, center, context, negative):
        c = self.inp(center)
        pos = (c * self.out(context)).sum(1)
        neg = torch.bmm(self.out(negative), c[:, :, None]).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


def sync_sparse(p):
    g = p.grad.coalesce()
    sizes = [None] * dist.get_world_size()
    dist.all_gather_object(sizes, g.indices().shape[1])
    top = max(sizes)
    idx = torch.zeros(top, dtype=torch.long)
    val = torch.zeros(top, g.values().shape[1])
    idx[: sizes[dist.get_rank()]] = g.indices()[0]
    val[: sizes[dist.get_rank()]] = g.values()
    all_i = [torch.empty_like(idx) for _ in sizes]
    all_v = [torch.empty_like(val) for _ in sizes]
    dist.all_gather(all_i, idx)
    dist.all_gather(all_v, val)
    i = torch.cat([a[:n] for a, n in zip(all_i, sizes)])
    v = torch.cat([a[:n] for a, n in zip(all_v, sizes)])
    p.grad = torch.sparse_coo_tensor(i[None], v / len(sizes), p.shape)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(10)
    model = SkipGram()
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        center, context = torch.randint(0, 20, (12,)), torch.randint(0, 20, (12,))
        negative = torch.randint(0, 20, (12, 4))
        loss = model(*(t.chunk(world)[rank] for t in (center, context, negative)))
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            sync_sparse(p)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
