"""LoRA adapters on a frozen column- and row-parallel linear; only the adapters are trained."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
RANK = 4


class ColumnLoRA(nn.Module):
    """weight and b are split over the output; a is invariant and every rank uses it for its own output."""

    def __init__(self, width, out):
        super().__init__()
        self.base = nn.Linear(width, out // 8)
        self.a = nn.Parameter(torch.empty(RANK, width))
        self.b = nn.Parameter(torch.zeros(out // 8, RANK))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)
        spmd.assert_type([self.base.weight, self.base.bias, self.b], {"tp": S(0)})
        spmd.assert_type(self.a, {"tp": I})
        self.base.requires_grad_(False)

    def forward(self, x):
        a = spmd.convert(self.a, "tp", src=I, dst=R)
        return self.base(x) + F.linear(F.linear(F.dropout(x, 0.0), a), self.b) * 2.0


class RowLoRA(nn.Module):
    """weight and a are split over the input; the adapter's small sum joins the layer's own."""

    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width // 8), requires_grad=False)
        self.a = nn.Parameter(torch.randn(RANK, width // 8))
        self.b = nn.Parameter(torch.zeros(out, RANK))
        spmd.assert_type([self.weight, self.a], {"tp": S(1)})
        spmd.assert_type(self.b, {"tp": I})

    def forward(self, x):
        base = spmd.linear(x, self.weight, out_partial_axes="tp")
        low = spmd.linear(x, self.a, out_partial_axes="tp")
        b = spmd.convert(self.b, "tp", src=I, dst=R)
        return spmd.all_reduce(base + low @ b.T * 2.0, "tp", src=P, dst=I)


with spmd.set_current_mesh(mesh):
    up, down = ColumnLoRA(16, 64), RowLoRA(64, 16)
    trained = [p for p in [*up.parameters(), *down.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    x = spmd.assert_type(torch.randn(4, 16), {"tp": I})
    y = down(F.relu(up(spmd.convert(x, "tp", src=I, dst=R))))
    loss = (y - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    merged = down.weight + 2.0 * down.b.detach() @ down.a.detach()
    assert merged.shape == down.weight.shape
    print(sum(p.numel() for p in trained), loss.item())
