# A table cut by rows: ids and rows travel by all_to_all, with sizes that the ids decide. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS, DIM, BATCH, BAG = 32, 6, 16, 3


class RowTable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        world, rank = dist.get_world_size(), dist.get_rank()
        per = ROWS // world
        owner = ids.div(per, rounding_mode="floor")
        order = owner.argsort(stable=True)
        send = torch.bincount(owner, minlength=world)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        send, recv = send.tolist(), recv.tolist()
        asked = ids.new_empty(sum(recv))
        dist.all_to_all_single(asked, ids[order], recv, send)
        local = asked - rank * per
        answer = table.new_empty(len(ids), table.shape[1])
        dist.all_to_all_single(answer, table[local], send, recv)
        out = torch.empty_like(answer)
        out[order] = answer
        ctx.save_for_backward(order, local)
        ctx.sizes, ctx.shape = (send, recv), table.shape
        return out

    @staticmethod
    def backward(ctx, grad):
        order, local = ctx.saved_tensors
        send, recv = ctx.sizes
        mine = grad.new_empty(sum(recv), grad.shape[1])
        dist.all_to_all_single(mine, grad[order].contiguous(), recv, send)
        g = grad.new_zeros(ctx.shape).index_add_(0, local, mine)
        return g / dist.get_world_size(), None


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(DIM + 4, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, dense, bags):
        return self.mlp(torch.cat([dense, bags], 1)).squeeze(1)


def stream(steps):
    g = torch.Generator().manual_seed(9)
    for _ in range(steps):
        ids = torch.randint(0, ROWS, (BATCH, BAG), generator=g)
        dense = torch.randn(BATCH, 4, generator=g)
        click = (torch.rand(BATCH, generator=g) < 0.4).float()
        yield ids, dense, click


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    full = torch.randn(ROWS, DIM)
    table = nn.Parameter(full.chunk(world)[rank].clone())
    tower = DDP(Tower())
    dense_opt = torch.optim.Adam(tower.parameters(), lr=0.01)
    sparse_opt = torch.optim.Adagrad([table], lr=0.1)
    for ids, dense, click in stream(4):
        ids, dense, click = (t.chunk(world)[rank] for t in (ids, dense, click))
        rows = RowTable.apply(table, ids.reshape(-1)).view(*ids.shape, DIM)
        logit = tower(dense, rows.sum(1))
        loss = nn.functional.binary_cross_entropy_with_logits(logit, click)
        dense_opt.zero_grad()
        sparse_opt.zero_grad()
        loss.backward()
        dense_opt.step()
        sparse_opt.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    mean /= world
    norm = table.detach().pow(2).sum()
    dist.all_reduce(norm)
    if rank == 0:
        print("RESULT", mean.item(), norm.item())
    dist.destroy_process_group()


main()
