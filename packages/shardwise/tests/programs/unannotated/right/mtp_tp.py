# Multi-token prediction, tensor parallel: a trunk, and two heads that share the output matrix. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FFN(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(d, 2 * d, False), nn.Linear(2 * d, d, False), nn.Linear(d, 2 * d, False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.hd = d // heads
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, False) for _ in range(4))
        self.ffn = FFN(d)

    def forward(self, x):
        B, T, _ = x.shape
        h = self.n1(x)
        q, k, v = (w(h).view(B, T, -1, self.hd).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, -1)
        x = x + self.wo(a)
        return x + self.ffn(self.n2(x))


class MTPHead(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.hnorm, self.enorm, self.proj = nn.RMSNorm(d), nn.RMSNorm(d), nn.Linear(2 * d, d, False)
        self.block = Block(d, heads)

    def forward(self, h, e):
        return self.block(self.proj(torch.cat([self.hnorm(h), self.enorm(e)], -1)))


class Model(nn.Module):
    def __init__(self, vocab=14, d=8, heads=2, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.trunk = nn.ModuleList(Block(d, heads) for _ in range(2))
        self.mtp = nn.ModuleList(MTPHead(d, heads) for _ in range(depth))
        self.norm, self.out = nn.RMSNorm(d), nn.Linear(d, vocab, False)

    def forward(self, ids):
        T = ids.size(1) - len(self.mtp)
        h = self.emb(ids[:, :T])
        for b in self.trunk:
            h = b(h)
        logits = [self.out(self.norm(h))]
        for k, head in enumerate(self.mtp, 1):
            h = head(h, self.emb(ids[:, k : k + T]))
            logits.append(self.out(self.norm(h)))
        return logits


PLAN = {
    "wq": ColwiseParallel(),
    "wk": ColwiseParallel(),
    "wv": ColwiseParallel(),
    "wo": RowwiseParallel(),
    "ffn.w1": ColwiseParallel(),
    "ffn.w2": RowwiseParallel(),
    "ffn.w3": ColwiseParallel(),
}


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = min(2, world)
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = Model()
    for b in [*model.trunk, *(m.block for m in model.mtp)]:
        parallelize_module(b, mesh["tp"], PLAN)
    parallelize_module(
        model,
        mesh["tp"],
        {
            "emb": RowwiseParallel(input_layouts=Replicate()),
            "out": ColwiseParallel(output_layouts=Replicate()),
        },
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    data = torch.randint(0, 14, (2, 4, 9))
    r, n = mesh.get_local_rank("dp"), mesh["dp"].size()
    for batch in data:
        batch = batch.chunk(n)[r]
        ids, labels = batch[:, :-1], batch[:, 1:]
        losses = []
        for k, logits in enumerate(model(ids)):
            T = logits.size(1)
            losses.append(F.cross_entropy(logits.flatten(0, 1), labels[:, k : k + T].flatten()))
        loss = losses[0] + 0.3 * sum(losses[1:]) / len(losses[1:])
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            g = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
            dist.all_reduce(g, group=mesh.get_group("dp"))
            g /= n
        opt.step()
    dist.destroy_process_group()


main()
