# K-FAC: factors of activations and gradients are averaged, each layer is preconditioned everywhere. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class KFAC:
    def __init__(self, model, damping=0.1, decay=0.8):
        self.damping, self.decay = damping, decay
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.a, self.g, self.A, self.G = {}, {}, {}, {}
        for layer in self.layers:
            layer.register_forward_pre_hook(self.save_input)
            layer.register_full_backward_hook(self.save_grad)

    def save_input(self, layer, inputs):
        x = inputs[0].detach()
        self.a[layer] = torch.cat([x, x.new_ones(x.shape[0], 1)], 1)

    def save_grad(self, layer, grad_in, grad_out):
        self.g[layer] = grad_out[0].detach() * grad_out[0].shape[0]

    @torch.no_grad()
    def step(self):
        world = dist.get_world_size()
        for layer in self.layers:
            a, g = self.a.pop(layer), self.g.pop(layer)
            for store, rows in ((self.A, a), (self.G, g)):
                factor = rows.t() @ rows / rows.shape[0]
                dist.all_reduce(factor)
                factor /= world
                store[layer] = factor if layer not in store else self.decay * store[layer] + (1 - self.decay) * factor
            A = self.A[layer] + self.damping * torch.eye(self.A[layer].shape[0])
            G = self.G[layer] + self.damping * torch.eye(self.G[layer].shape[0])
            grad = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], 1)
            natural = torch.linalg.solve(G, grad) @ torch.linalg.inv(A)
            layer.weight.grad.copy_(natural[:, :-1])
            layer.bias.grad.copy_(natural[:, -1])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(64)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 3))
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    preconditioner = KFAC(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(4):
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(16, 6, generator=g), torch.randint(3, (16,), generator=g)
        size = 16 // world
        x, y = x.narrow(0, rank * size, size), y.narrow(0, rank * size, size)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        preconditioner.step()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"{step} {total.item() / world:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
