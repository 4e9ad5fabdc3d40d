# PowerSGD with error feedback: the optimizer sums factors of gradients in its own step. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn, optim


class PowerSGD(optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, rank=2):
        super().__init__(params, {"lr": lr, "momentum": momentum, "rank": rank})
        self.world = dist.get_world_size()

    def mean(self, t):
        dist.all_reduce(t)
        return t.div_(self.world)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for i, p in enumerate(group["params"]):
                st = self.state[p]
                if p.ndim < 2:
                    update = self.mean(p.grad.clone())
                else:
                    if not st:
                        g = torch.Generator().manual_seed(100 + i)
                        st["q"] = torch.randn(p.shape[1], group["rank"], generator=g)
                        st["error"] = torch.zeros_like(p)
                    m = p.grad + st["error"]
                    left = self.mean(m @ st["q"])
                    left = torch.linalg.qr(left).Q
                    st["q"] = self.mean(m.t() @ left)
                    update = left @ st["q"].t()
                    st["error"] = m - update
                buf = st.setdefault("momentum", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(update)
                p.add_(buf, alpha=-group["lr"])


def batches(n, size, seed=11):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        x = torch.randn(size, 10, generator=g)
        yield x, torch.sin(x.sum(1, keepdim=True))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = PowerSGD(net.parameters(), lr=0.1)
    for x, y in batches(5, 12):
        x, y = x[rank::world], y[rank::world]
        loss = (net(x) - y).square().mean()
        net.zero_grad()
        loss.backward()
        opt.step()
    logged = opt.mean(loss.detach().clone())
    if rank == 0:
        print("RESULT", logged.item(), sum(p.detach().pow(2).sum() for p in net.parameters()).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
