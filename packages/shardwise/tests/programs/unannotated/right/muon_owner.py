# Muon: every rank orthogonalises its share of the matrices and broadcasts the result; vectors by AdamW. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def orthogonal(g, steps=4):
    x = g / (g.norm() + 1e-7)
    flip = x.shape[0] > x.shape[1]
    x = x.T if flip else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if flip else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            handles = []
            for n, p in enumerate(group["params"]):
                state = self.state[p]
                if "buf" not in state:
                    state["buf"], state["update"] = torch.zeros_like(p), torch.zeros_like(p)
                if n % world == rank:
                    state["buf"].mul_(group["momentum"]).add_(p.grad)
                    state["update"].copy_(orthogonal(p.grad + group["momentum"] * state["buf"]))
                handles.append(dist.broadcast(state["update"], src=n % world, async_op=True))
            for handle, p in zip(handles, group["params"]):
                handle.wait()
                p.add_(self.state[p]["update"], alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 3))
    matrices = [p for p in net.parameters() if p.ndim == 2]
    muon = Muon(matrices)
    adam = torch.optim.AdamW([p for p in net.parameters() if p.ndim == 1], lr=1e-2)
    g = torch.Generator().manual_seed(5)
    for _ in range(3):
        x, y = torch.randn(8, 6, generator=g), torch.randint(0, 3, (8,), generator=g)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        loss = F.cross_entropy(net(x), y)
        net.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(world)
        muon.step()
        adam.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print("RESULT", (total / world).item(), sum(p.abs().sum().item() for p in net.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
