# A pipeline by hand with blocking p2p over stages that are tensor parallel inside by a DTensor plan. mesh: pp=2,tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HIDDEN = 8


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.w1, self.w2, self.w3 = (
            nn.Linear(HIDDEN, 16, bias=False),
            nn.Linear(16, HIDDEN, bias=False),
            nn.Linear(HIDDEN, 16, bias=False),
        )

    def forward(self, x):
        h = self.norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Stage(nn.Module):
    def __init__(self, index, count, layers):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): layers[i] for i in range(index * 4 // count, (index + 1) * 4 // count)})
        self.first, self.last = index == 0, index == count - 1
        self.head = nn.Linear(HIDDEN, 1) if self.last else None

    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return self.head(x).squeeze(-1) if self.last else x


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = 2 if world % 2 == 0 else 1
    pp = world // tp
    mesh = init_device_mesh("cpu", (pp, tp), mesh_dim_names=("pp", "tp"))
    torch.manual_seed(6)
    index = mesh.get_local_rank("pp")
    layers = [FeedForward() for _ in range(4)]
    stage = Stage(index, pp, layers)
    plan = {"layers.*.w1": ColwiseParallel(), "layers.*.w3": ColwiseParallel(), "layers.*.w2": RowwiseParallel()}
    parallelize_module(stage, mesh["tp"], plan)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    ranks = dist.get_process_group_ranks(mesh.get_group("pp"))
    before = ranks[index - 1] if index > 0 else None
    after = ranks[index + 1] if index < pp - 1 else None
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        batch, target = torch.randn(6, HIDDEN, generator=g), torch.randn(6, generator=g)
        optimizer.zero_grad()
        held, total = [], 0.0
        for x, y in zip(batch.chunk(2), target.chunk(2)):
            if before is not None:
                x = torch.empty_like(x)
                dist.recv(x, before)
                x.requires_grad_()
            out = stage(x)
            if after is not None:
                dist.send(out.detach(), after)
            else:
                out = F.mse_loss(out, y) / 2
                total += out.item()
            held.append((x, out))
        for x, out in held:
            if after is not None:
                grad = torch.empty_like(out)
                dist.recv(grad, after)
                out.backward(grad)
            else:
                out.backward()
            if before is not None:
                dist.send(x.grad, before)
        optimizer.step()
        if after is None and mesh.get_local_rank("tp") == 0:
            print(f"{step} {total:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
