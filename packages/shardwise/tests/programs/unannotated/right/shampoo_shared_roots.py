# Shampoo of which ranks share out the inverse roots and broadcast them. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def root(m, p):
    w, q = torch.linalg.eigh(m + 1e-2 * torch.eye(len(m)))
    return q @ torch.diag(w.clamp(min=1e-6) ** (-1 / p)) @ q.T


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        n, r = dist.get_world_size(), dist.get_rank()
        jobs = []
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                if p.ndim < 2:
                    p.sub_(p.grad, alpha=g["lr"])
                    continue
                if not s:
                    s["L"], s["R"] = torch.zeros(p.shape[0], p.shape[0]), torch.zeros(p.shape[1], p.shape[1])
                s["L"] += p.grad @ p.grad.T
                s["R"] += p.grad.T @ p.grad
                jobs += [(s, "L"), (s, "R")]
        for k, (s, side) in enumerate(jobs):
            owner = k % n
            s["i" + side] = root(s[side], 4) if r == owner else torch.empty_like(s[side])
            dist.broadcast(s["i" + side], owner)
        for g in self.param_groups:
            for p in g["params"]:
                if p.ndim == 2:
                    s = self.state[p]
                    p.sub_(s["iL"] @ p.grad @ s["iR"], alpha=g["lr"])


def main():
    dist.init_process_group("gloo")
    n, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(71)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = Shampoo(net.parameters())
    out = []
    for _ in range(3):
        x, y = torch.randn(12, 5), torch.randint(0, 3, (12,))
        loss = F.cross_entropy(net(x.tensor_split(n)[r]), y.tensor_split(n)[r])
        net.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.mul_(1.0 / n)
        opt.step()
        v = loss.detach() / n
        dist.all_reduce(v)
        out.append(v.item())
    if r == 0:
        print(*out)
    dist.destroy_process_group()


main()
