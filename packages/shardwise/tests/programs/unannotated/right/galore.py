# GaLore: Adam in a low-rank subspace of the averaged gradient, refreshed every two steps. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class GaLore(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, rank=2, refresh=2, betas=(0.9, 0.95), eps=1e-8):
        super().__init__(params, {"lr": lr, "rank": rank, "refresh": refresh, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g, state = p.grad, self.state[p]
                low = g.ndim == 2 and min(g.shape) > group["rank"]
                t = state.get("t", 0)
                if low:
                    if t % group["refresh"] == 0:
                        u, _, _ = torch.linalg.svd(g, full_matrices=False)
                        u = u[:, : group["rank"]]
                        state["basis"] = u * torch.sign(u.sum(0))
                    g = state["basis"].T @ g
                if t == 0:
                    state["m"], state["v"] = torch.zeros_like(g), torch.zeros_like(g)
                state["m"].lerp_(g, 1 - b1)
                state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
                t += 1
                state["t"] = t
                update = (state["m"] / (1 - b1**t)) / ((state["v"] / (1 - b2**t)).sqrt() + group["eps"])
                if low:
                    update = state["basis"] @ update
                p.sub_(group["lr"] * update)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 20))
    ddp = DDP(model)
    opt = GaLore(ddp.parameters())
    tokens = torch.randint(0, 20, (4, 8, 5))
    for batch in tokens:
        per = batch.size(0) // world
        batch = batch[rank * per : (rank + 1) * per]
        opt.zero_grad()
        F.cross_entropy(ddp(batch[:, :4]), batch[:, 4]).backward()
        opt.step()
    dist.destroy_process_group()


main()
