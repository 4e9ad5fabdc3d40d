# Mixtral's top-2 routing: rows are sorted by expert and sent by counts, the balance loss is global. mesh: ep=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

DIM, EXPERTS, TOP, CLASSES = 8, 4, 2, 6


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = (out_splits, in_splits)
        out = x.new_empty((sum(out_splits), *x.shape[1:]))
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, grad):
        out_splits, in_splits = ctx.splits
        return AllToAll.apply(grad, in_splits, out_splits), None, None


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(DIM, 2 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        a, b = self.w1(x).chunk(2, -1)
        return self.w2(F.silu(a) * b)


class SparseMoE(nn.Module):
    def __init__(self):
        super().__init__()
        rank, self.world = dist.get_rank(), dist.get_world_size()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        everyone = [SwiGLU() for _ in range(EXPERTS)]
        self.per = EXPERTS // self.world
        self.offset = rank * self.per
        self.experts = nn.ModuleDict({str(self.offset + i): everyone[self.offset + i] for i in range(self.per)})

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weights, chosen = probs.topk(TOP, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        rows = x[order // TOP]
        counts = torch.bincount(flat, minlength=EXPERTS)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        sent = counts.view(self.world, self.per).sum(1).tolist()
        received = incoming.view(self.world, self.per).sum(1).tolist()
        arrived = AllToAll.apply(rows, received, sent)
        owner = torch.arange(self.per).repeat(self.world).repeat_interleave(incoming)
        computed = torch.zeros_like(arrived)
        for name, expert in self.experts.items():
            here = owner == int(name) - self.offset
            computed = computed.index_put((here.nonzero().squeeze(1),), expert(arrived[here]))
        back = AllToAll.apply(computed, sent, received)
        out = torch.zeros_like(x).index_add(0, order // TOP, back * weights.flatten()[order, None])
        load = counts.float()
        dist.all_reduce(load)
        balance = EXPERTS * (load / load.sum() * probs.mean(0)).sum()
        return x + out, balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.moe, self.norm = nn.Embedding(15, DIM), SparseMoE(), nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, ids):
        x, balance = self.moe(self.embed(ids))
        return self.head(self.norm(x)), balance


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    model = Model()
    experts = {id(p) for p in model.moe.experts.parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        ids, labels = torch.randint(15, (16,), generator=g), torch.randint(CLASSES, (16,), generator=g)
        ids, labels = ids.chunk(world)[rank], labels.chunk(world)[rank]
        logits, balance = model(ids)
        loss = F.cross_entropy(logits, labels) + 0.05 * balance
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            if id(p) not in experts:
                dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step} loss {shown.item() / world:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
