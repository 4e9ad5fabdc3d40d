# Contrastive loss beyond memory: embeddings without a graph, gradients of the loss to them, a second pass. mesh: dp=4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, vocab, d):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.Tanh(), nn.Linear(2 * d, d))

    def forward(self, ids):
        return F.normalize(self.mlp(self.emb(ids)), dim=-1)


class GradCache:
    def __init__(self, models, chunk, temperature=0.1):
        self.models, self.chunk, self.t = models, chunk, temperature

    def forward_no_grad(self, model, ids):
        with torch.no_grad():
            return torch.cat([model(part) for part in ids.split(self.chunk)])

    def gather(self, x):
        rank, world = dist.get_rank(), dist.get_world_size()
        out = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(out, x.contiguous())
        out[rank] = x
        return torch.cat(out)

    def build_cache(self, q, d):
        q, d = q.detach().requires_grad_(), d.detach().requires_grad_()
        scores = self.gather(q) @ self.gather(d).T / self.t
        loss = F.cross_entropy(scores, torch.arange(scores.size(0)))
        loss.backward()
        return q.grad, d.grad, loss.detach()

    def forward_backward(self, model, ids, cache):
        parts = list(zip(ids.split(self.chunk), cache.split(self.chunk)))
        for i, (part, grad) in enumerate(parts):
            if i < len(parts) - 1:
                with model.no_sync():
                    torch.dot(model(part).flatten(), grad.flatten()).backward()
            else:
                torch.dot(model(part).flatten(), grad.flatten()).backward()

    def step(self, q_ids, d_ids):
        q, d = (self.forward_no_grad(m, ids) for m, ids in zip(self.models, (q_ids, d_ids)))
        q_cache, d_cache, loss = self.build_cache(q, d)
        world = dist.get_world_size()
        self.forward_backward(self.models[0], q_ids, q_cache * world)
        self.forward_backward(self.models[1], d_ids, d_cache * world)
        return loss


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    towers = [nn.parallel.DistributedDataParallel(Encoder(20, 6)) for _ in range(2)]
    opt = torch.optim.AdamW([p for t in towers for p in t.parameters()], lr=1e-2)
    cache = GradCache(towers, chunk=2)
    for _ in range(2):
        q, d = torch.randint(0, 20, (16, 3)), torch.randint(0, 20, (16, 5))
        loss = cache.step(q.chunk(world)[rank], d.chunk(world)[rank])
        opt.step()
        opt.zero_grad()
        if rank == 0:
            print(loss.item())
    dist.destroy_process_group()


main()
