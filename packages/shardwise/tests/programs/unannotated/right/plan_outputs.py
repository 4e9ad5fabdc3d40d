# DTensor plans with prepared inputs and outputs, plain parameters and DDP-like sums beside them. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    parallelize_module,
)


class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.w2(torch.sigmoid(self.w1(x)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = Gate(dim)
        self.scale = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x):
        return x + self.scale * self.gate(self.norm(x))


def parallelize(model, tp):
    for block in model.blocks:
        parallelize_module(
            block.gate,
            tp,
            {
                "w1": ColwiseParallel(use_local_output=False),
                "w2": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
            },
        )
        plan = PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate())
        parallelize_module(block.gate, tp, plan)
    parallelize_module(
        model.head,
        tp,
        PrepareModuleInputOutput(
            input_layouts=Replicate(),
            desired_input_layouts=Replicate(),
            use_local_input=True,
            output_layouts=Replicate(),
            desired_output_layouts=Replicate(),
        ),
    )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 20)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def local(x):
    return x.to_local() if isinstance(x, DTensor) else x


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = 2 if world > 1 else 1
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(5)
    model = Model()
    parallelize(model, mesh["tp"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
    me, n = mesh.get_local_rank("dp"), mesh["dp"].size()
    for step in range(3):
        gen = torch.Generator().manual_seed(step)
        ids, labels = torch.randint(20, (8, 4), generator=gen), torch.randint(20, (8, 4), generator=gen)
        logits = local(model(ids.chunk(n)[me]))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.chunk(n)[me].flatten())
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            grad = local(p.grad)
            dist.all_reduce(grad, group=mesh.get_group("dp"))
            grad.div_(n)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=mesh.get_group("dp"))
        if dist.get_rank() == 0:
            print(step, f"{mean.item() / n:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
