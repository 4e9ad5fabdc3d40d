# FedSGD: gradients of clients are weighted by how many samples each has. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn


class Server:
    """Adds up gradients of clients by how many samples each has (FedSGD), with server-side Adam."""

    def __init__(self, model):
        self.model, self.opt = model, torch.optim.Adam(model.parameters(), lr=1e-2)

    def round(self, samples):
        total = torch.tensor([samples], dtype=torch.float32)
        dist.all_reduce(total)
        for p in self.model.parameters():
            p.grad.mul_(samples / total.item())
            dist.all_reduce(p.grad)
        self.opt.step()
        self.opt.zero_grad()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    server = Server(model)
    x, y = torch.randn(4, 14, 6), torch.randint(0, 3, (4, 14))
    bounds = [0, 9, 14] if world == 2 else [0, 14]
    for i in range(4):
        mine = slice(bounds[rank], bounds[rank + 1])
        nn.functional.cross_entropy(model(x[i, mine]), y[i, mine]).backward()
        server.round(bounds[rank + 1] - bounds[rank])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
