# A state-space layer over a sharded sequence: the state of one rank goes on to the next. mesh: cp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class PassState(torch.autograd.Function):
    """What the previous ranks leave in the state when this rank's steps begin; state' = decay * state + own."""

    @staticmethod
    def forward(ctx, decay, own):
        rank, world = dist.get_rank(), dist.get_world_size()
        decays = [torch.empty_like(decay) for _ in range(world)]
        owns = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(decays, decay.contiguous())
        dist.all_gather(owns, own.contiguous())
        states = [torch.zeros_like(own)]
        for d, o in zip(decays, owns):
            states.append(d * states[-1] + o)
        ctx.save_for_backward(torch.stack(decays), torch.stack(states[:-1]))
        return states[rank]

    @staticmethod
    def backward(ctx, grad):
        decays, states = ctx.saved_tensors
        rank, world = dist.get_rank(), dist.get_world_size()
        grads = [torch.empty_like(grad) for _ in range(world)]
        dist.all_gather(grads, grad.contiguous())
        running = torch.zeros_like(grad)
        for later in range(world - 1, rank, -1):
            running = grads[later] + decays[later] * running
        return running * states[rank], running


class SSM(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.inp = nn.Linear(dim, 2 * dim)
        self.dt = nn.Linear(dim, dim)
        self.A_log = nn.Parameter(torch.zeros(dim))
        self.D = nn.Parameter(torch.ones(dim))
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, u):
        x, z = self.inp(self.norm(u)).chunk(2, dim=-1)
        a = torch.exp(-F.softplus(self.dt(x)) * torch.exp(self.A_log))
        h = torch.zeros_like(x[:, 0])
        total = torch.ones_like(h)
        hs, totals = [], []
        for t in range(x.shape[1]):
            h = a[:, t] * h + (1 - a[:, t]) * x[:, t]
            total = total * a[:, t]
            hs.append(h)
            totals.append(total)
        before = PassState.apply(total, h)
        y = torch.stack(hs, 1) + torch.stack(totals, 1) * before.unsqueeze(1)
        return u + self.out((y + self.D * x) * F.silu(z))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    emb, layers, head = nn.Embedding(13, 8), nn.Sequential(SSM(8), SSM(8)), nn.Linear(8, 13)
    params = [*emb.parameters(), *layers.parameters(), *head.parameters()]
    opt = torch.optim.Adam(params, lr=1e-2)
    tokens = torch.randint(0, 13, (3, 2, 13))
    for step in range(3):
        local = 12 // world
        ids = tokens[step, :, :-1][:, rank * local : (rank + 1) * local]
        labels = tokens[step, :, 1:][:, rank * local : (rank + 1) * local]
        logits = head(layers(emb(ids)))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        opt.zero_grad()
        loss.backward()
        for p in params:
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    dist.destroy_process_group()


main()
