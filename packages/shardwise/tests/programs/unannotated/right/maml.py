# MAML: tasks are shared out, an inner step by torch.func, the outer gradients are averaged by hand. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call


class Sine(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(1, 12), nn.Linear(12, 12), nn.Linear(12, 1)

    def forward(self, x):
        return self.l3(torch.tanh(self.l2(torch.tanh(self.l1(x)))))


def task_loss(model, params, x, y):
    return F.mse_loss(functional_call(model, params, (x,)), y)


def adapt(model, params, x, y, lr):
    for _ in range(2):
        loss = task_loss(model, params, x, y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        params = {name: p - lr * g for (name, p), g in zip(params.items(), grads)}
    return params


def sample_tasks(n, seed):
    g = torch.Generator().manual_seed(seed)
    amplitude, phase = 0.5 + torch.rand(n, 1, 1, generator=g), 3 * torch.rand(n, 1, 1, generator=g)
    x = 4 * torch.rand(n, 10, 1, generator=g) - 2
    return x, amplitude * torch.sin(x + phase)


def reduce_grads(model):
    world = dist.get_world_size()
    handles = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for handle in handles:
        handle.wait()
    for p in model.parameters():
        p.grad.mul_(1.0 / world)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = Sine()
    meta = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration in range(3):
        xs, ys = sample_tasks(4, iteration)
        mine = range(rank, 4, world)
        meta.zero_grad()
        outer = torch.zeros(())
        for t in mine:
            support, query = slice(0, 5), slice(5, 10)
            fast = adapt(model, dict(model.named_parameters()), xs[t, support], ys[t, support], lr=0.05)
            outer = outer + task_loss(model, fast, xs[t, query], ys[t, query])
        outer = outer / len(mine)
        outer.backward()
        reduce_grads(model)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        meta.step()
        total = outer.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"iteration {iteration}: {total.item() / world:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
