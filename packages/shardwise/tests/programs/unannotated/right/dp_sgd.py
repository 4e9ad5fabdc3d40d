# DP-SGD: per-sample gradients by vmap, clipped, summed over ranks; the noise is drawn alike everywhere. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    params = dict(model.named_parameters())
    noise = torch.Generator().manual_seed(99)
    C, sigma, lr, batch = 0.5, 0.3, 0.2, 8

    def loss_of(p, x, y):
        return F.cross_entropy(functional_call(model, p, (x[None],)), y[None])

    xs, ys = torch.randn(3, batch, 5), torch.randint(0, 3, (3, batch))
    for x, y in zip(xs, ys):
        n = batch // world
        x, y = x[rank * n : (rank + 1) * n], y[rank * n : (rank + 1) * n]
        detached = {k: v.detach() for k, v in params.items()}
        grads = vmap(grad(loss_of), in_dims=(None, 0, 0))(detached, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (C / (norms + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for name, p in params.items():
                total = torch.einsum("b,b...->...", factor, grads[name])
                dist.all_reduce(total)
                total += sigma * C * torch.randn(total.shape, generator=noise)
                p -= lr * total / batch
    dist.destroy_process_group()


main()
