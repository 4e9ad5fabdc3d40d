# A module and an update compiled as full graphs, with collectives of c10d inside. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class SumOverTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Rows(nn.Module):
    def __init__(self, dim, hidden, mesh):
        super().__init__()
        self.group = mesh.get_group()
        rank, size = mesh.get_local_rank(), mesh.size()
        up, down = torch.randn(hidden, dim) / dim, torch.randn(dim, hidden) / hidden
        self.up = nn.Parameter(up.chunk(size)[rank].clone())
        self.down = nn.Parameter(down.chunk(size, 1)[rank].clone())

    def forward(self, x):
        return SumOverTP.apply(torch.relu(x @ self.up.T) @ self.down.T, self.group)


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = min(world, 2)
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    dp, dp_rank, dp_size = mesh.get_group("dp"), mesh.get_local_rank("dp"), mesh["dp"].size()
    torch.manual_seed(4)
    layer = Rows(6, 8, mesh["tp"])
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    parameters = list(layer.parameters())

    @torch.compile(backend="aot_eager", fullgraph=True)
    def update(grads):
        new = []
        for p, g in zip(parameters, grads):
            g = g.clone()
            dist.all_reduce(g, group=dp)
            new.append(p.detach() - 0.1 * g / dp_size)
        return new

    for step in range(3):
        gen = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 6, generator=gen), torch.randn(8, 6, generator=gen)
        x, y = x.chunk(dp_size)[dp_rank], y.chunk(dp_size)[dp_rank]
        loss = (compiled(x) - y).square().mean()
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, new in zip(parameters, update(grads)):
                p.copy_(new)
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=dp)
        if dist.get_rank() == 0:
            print(step, f"{mean.item() / dp_size:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
