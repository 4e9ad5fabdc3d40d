# A physics-informed network: second derivatives in the loss, collocation points shared out. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(9)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
nu = nn.Parameter(torch.tensor(0.02))
params = [*net.parameters(), nu]
opt = torch.optim.Adam(params, lr=1e-2)
interior = torch.rand(16, 2) * 2 - 1
boundary = torch.rand(8, 2) * 2 - 1
boundary[:, 0] = torch.sign(boundary[:, 0])
target = torch.sin(boundary[:, 1:])


def residual(points):
    points = points.clone().requires_grad_(True)
    u = net(points)
    du = torch.autograd.grad(u, points, torch.ones_like(u), create_graph=True)[0]
    ux, ut = du[:, :1], du[:, 1:]
    uxx = torch.autograd.grad(ux, points, torch.ones_like(ux), create_graph=True)[0][:, :1]
    return ut + u * ux - nu * uxx


my_interior = interior[rank::world]
my_boundary, my_target = boundary[rank::world], target[rank::world]
for _ in range(3):
    loss = residual(my_interior).pow(2).mean() + 10 * (net(my_boundary) - my_target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    grads = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(grads, op=dist.ReduceOp.SUM)
    grads /= world
    start = 0
    for p in params:
        p.grad.copy_(grads[start : start + p.numel()].view_as(p))
        start += p.numel()
    opt.step()
dist.destroy_process_group()
