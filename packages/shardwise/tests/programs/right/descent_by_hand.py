"""Leaves made by factories, momentum by hand, early stopping on the global loss."""

# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
DP, TP = mesh["dp"].size(), mesh["tp"].size()
dpr, tpr = mesh.get_local_rank("dp"), mesh.get_local_rank("tp")
torch.manual_seed(0)


def cut(full, dim, n, r):
    return full.chunk(n, dim)[r].clone()


def cross_entropy(logits, y):
    return -logits.log_softmax(-1)[torch.arange(len(y)), y]


with spmd.set_current_mesh(mesh):
    W = (torch.randn(16, 4) * 0.1).requires_grad_()
    b = torch.zeros(4, requires_grad=True)
    spmd.assert_type([W, b], {"dp": R, "tp": I})
    vel = {}
    best, patience, lr = float("inf"), 0, 0.1
    for _step in range(4):
        x = spmd.assert_type(cut(torch.randn(8, 16), 0, DP, dpr), {"dp": S(0), "tp": I})
        y = spmd.assert_type(cut(torch.randint(0, 4, (8,)), 0, DP, dpr), {"dp": S(0), "tp": I})
        loss = cross_entropy(x @ W + b, y).sum() / 8
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        with torch.no_grad():
            for name, p in {"W": W, "b": b}.items():
                dist.all_reduce(p.grad, group=dp)
                g = p.grad + 1e-4 * p
                v = vel[name] = g if name not in vel else 0.9 * vel[name] + g
                p -= lr * v
                p.grad.zero_()
        total = loss.detach().clone()
        dist.all_reduce(total, group=dp)
        if total.item() < best:
            best, patience = total.item(), 0
        else:
            patience += 1
        if patience > 2:
            lr *= 0.5
