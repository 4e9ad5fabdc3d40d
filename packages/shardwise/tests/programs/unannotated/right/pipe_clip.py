# Stages by hand, whose gradients are clipped by the norm of all of them. mesh: pp=2
import torch
import torch.distributed as dist
from torch import nn

MICRO, ROWS, DIM = 3, 4, 12


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))).square())


def exchange(ops):
    if ops:
        for req in dist.batch_isend_irecv(ops):
            req.wait()


def build(rank, world, depth=4):
    torch.manual_seed(0)
    embed, head = nn.Linear(5, DIM), nn.Linear(DIM, 1)
    blocks = [Residual(DIM) for _ in range(depth)]
    per = depth // world
    stage = nn.ModuleDict({str(i): blocks[i] for i in range(rank * per, (rank + 1) * per)})
    return embed if rank == 0 else None, stage, head if rank == world - 1 else None


def clip_across_stages(params, max_norm):
    total = sum(p.grad.float().pow(2).sum() for p in params)
    dist.all_reduce(total)
    norm = total.sqrt()
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for p in params:
        p.grad.mul_(scale)
    return norm


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    embed, stage, head = build(rank, world)
    parts = [m for m in (embed, stage, head) if m is not None]
    params = [p for m in parts for p in m.parameters()]
    opt = torch.optim.AdamW(params, lr=5e-3)
    data, goal = torch.randn(3, MICRO, ROWS, 5), torch.randn(3, MICRO, ROWS, 1)
    for step in range(3):
        opt.zero_grad()
        kept = []
        for m in range(MICRO):
            if rank == 0:
                inp, x = None, embed(data[step, m])
            else:
                inp = torch.empty(ROWS, DIM)
                exchange([dist.P2POp(dist.irecv, inp, rank - 1)])
                inp.requires_grad_()
                x = inp
            for layer in stage.values():
                x = layer(x)
            decay = 1e-2 * x.square().mean() / MICRO
            if rank < world - 1:
                exchange([dist.P2POp(dist.isend, x.detach().contiguous(), rank + 1)])
                kept.append((inp, x, None))
            else:
                loss = nn.functional.huber_loss(head(x), goal[step, m]) / MICRO + decay
                kept.append((inp, None, loss))
        for inp, out, loss in reversed(kept):
            if loss is not None:
                loss.backward()
            else:
                grad = torch.empty(ROWS, DIM)
                exchange([dist.P2POp(dist.irecv, grad, rank + 1)])
                out.backward(grad)
            if inp is not None:
                exchange([dist.P2POp(dist.isend, inp.grad, rank - 1)])
        clip_across_stages(params, 0.2)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
