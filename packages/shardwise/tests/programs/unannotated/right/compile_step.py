# One compiled function holds forward, loss and the collectives of tensor parallelism. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return funcol.all_reduce(grad, "sum", ctx.group), None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return funcol.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ParallelMLP(nn.Module):
    def __init__(self, dim, hidden, tp_mesh):
        super().__init__()
        self.group = tp_mesh.get_group().group_name
        up, down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        rank, size = tp_mesh.get_local_rank(), tp_mesh.size()
        self.up_weight = nn.Parameter(up.weight.detach().chunk(size)[rank].clone())
        self.up_bias = nn.Parameter(up.bias.detach().chunk(size)[rank].clone())
        self.down_weight = nn.Parameter(down.weight.detach().chunk(size, 1)[rank].clone())
        self.down_bias = nn.Parameter(down.bias.detach().clone())

    def forward(self, x):
        h = torch.relu(nn.functional.linear(CopyToTP.apply(x, self.group), self.up_weight, self.up_bias))
        return ReduceFromTP.apply(nn.functional.linear(h, self.down_weight), self.group) + self.down_bias


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = min(world, 2)
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    dp_mesh = mesh["dp"]
    torch.manual_seed(9)
    model = nn.Sequential(ParallelMLP(6, 12, mesh["tp"]), nn.LayerNorm(6), ParallelMLP(6, 12, mesh["tp"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="aot_eager")
    def loss_of(x, y):
        return (model(x) - y).square().mean()

    for step in range(3):
        gen = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 6, generator=gen), torch.randn(8, 6, generator=gen)
        x, y = x.chunk(dp_mesh.size())[dp_mesh.get_local_rank()], y.chunk(dp_mesh.size())[dp_mesh.get_local_rank()]
        loss = loss_of(x, y)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_mesh.get_group())
            p.grad /= dp_mesh.size()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=dp_mesh.get_group())
        if dist.get_rank() == 0:
            print(step, f"{mean.item() / dp_mesh.size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
