# A graph in parts: features of neighbours travel by exchanges of varying lengths. mesh: part=4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def make_graph(n=32, seed=0):
    g = torch.Generator().manual_seed(seed)
    src = torch.arange(n).repeat(3)
    dst = (src + torch.tensor([1, 2, 5]).repeat_interleave(n)) % n
    edges = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
    return (
        edges,
        torch.randn(n, 6, generator=g),
        torch.randint(0, 4, (n,), generator=g),
        torch.rand(n, generator=g) > 0.4,
    )


class Partition:
    def __init__(self, edges, n, rank, world):
        self.per = n // world
        self.rank, self.world = rank, world
        lo, hi = rank * self.per, (rank + 1) * self.per
        e = edges[:, (edges[1] >= lo) & (edges[1] < hi)]
        owners = e[0] // self.per
        self.need = [
            torch.unique(e[0][owners == o]) if o != rank else torch.empty(0, dtype=torch.long) for o in range(world)
        ]
        counts = torch.tensor([len(x) for x in self.need])
        gathered = [torch.empty_like(counts) for _ in range(world)]
        dist.all_gather(gathered, counts)
        self.recv_counts = counts.tolist()
        self.send_counts = [int(c[rank]) for c in gathered]
        wanted = torch.cat(self.need)
        give = torch.empty(sum(self.send_counts), dtype=torch.long)
        dist.all_to_all_single(give, wanted, self.send_counts, self.recv_counts)
        self.give = give - lo
        table = torch.full((n,), -1, dtype=torch.long)
        table[lo:hi] = torch.arange(self.per)
        table[wanted] = self.per + torch.arange(len(wanted))
        self.local_src, self.local_dst = table[e[0]], e[1] - lo
        self.degree = torch.zeros(self.per).index_add_(0, self.local_dst, torch.ones(e.shape[1]))


class HaloExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, part):
        ctx.part, ctx.rows = part, h.shape[0]
        send = h[part.give]
        recv = h.new_empty(sum(part.recv_counts), h.shape[1])
        dist.all_to_all_single(recv, send, part.recv_counts, part.send_counts)
        return torch.cat([h, recv])

    @staticmethod
    def backward(ctx, grad):
        part = ctx.part
        own, halo = grad[: ctx.rows], grad[ctx.rows :].contiguous()
        back = grad.new_empty(sum(part.send_counts), grad.shape[1])
        dist.all_to_all_single(back, halo, part.send_counts, part.recv_counts)
        return own.clone().index_add_(0, part.give, back), None


class SAGE(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.self_lin, self.neigh = nn.Linear(i, o), nn.Linear(i, o, bias=False)

    def forward(self, h, part):
        full = HaloExchange.apply(h, part)
        agg = torch.zeros_like(h).index_add(0, part.local_dst, full[part.local_src]) / part.degree[:, None]
        return self.self_lin(h) + self.neigh(agg)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = SAGE(6, 16), SAGE(16, 4)

    def forward(self, x, part):
        return self.c2(F.relu(self.c1(x, part)), part)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    edges, x, y, train = make_graph()
    part = Partition(edges, 32, rank, world)
    rows = slice(rank * part.per, (rank + 1) * part.per)
    x, y, train = x[rows], y[rows], train[rows]
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-2, eps=1e-3)
    n_train = train.sum()
    dist.all_reduce(n_train)
    for epoch in range(4):
        out = net(x, part)
        loss = F.cross_entropy(out[train], y[train], reduction="sum") / n_train
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        report = loss.detach().clone()
        dist.all_reduce(report)
        if rank == 0:
            print(f"epoch {epoch} loss {report.item():.6f}")


main()
