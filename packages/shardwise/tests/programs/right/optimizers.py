"""Common ways to step: groups with and without decay, foreach, fused and plain loops, schedulers, clipping, EMA."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


def groups(model):
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def reduce_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())


MAKERS = [
    lambda m: torch.optim.AdamW(groups(m), lr=1e-3, foreach=True),
    lambda m: torch.optim.AdamW(groups(m), lr=1e-3, foreach=False),
    lambda m: torch.optim.AdamW(groups(m), lr=1e-3, fused=True),
    lambda m: torch.optim.Adam(m.parameters(), amsgrad=True),
    lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, foreach=False),
    lambda m: torch.optim.SGD(m.parameters(), lr=0.1, fused=True),
    lambda m: torch.optim.RMSprop(m.parameters()),
    lambda m: torch.optim.Adagrad(m.parameters()),
    lambda m: torch.optim.Adafactor(m.parameters()),
]

with spmd.set_current_mesh(mesh):
    for make in MAKERS:
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
        for parameter in model.parameters():
            spmd.assert_type(parameter, {"dp": R})
        ema = copy.deepcopy(model).requires_grad_(False)
        optimizer = make(model)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            for _ in range(2):  # accumulation
                x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
                loss = model(x).square().mean() / 2
                spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
            reduce_gradients(model)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
            if torch.isfinite(norm):
                optimizer.step()
            scheduler.step()
            with torch.no_grad():
                for slow, fast in zip(ema.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.01)
                    slow.mul_(0.99).add_(fast, alpha=0.01)
                torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.1)
        state = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(state)
        ema.load_state_dict(model.state_dict())
        print(type(optimizer).__name__, f"{norm:.3f}", scheduler.get_last_lr())
