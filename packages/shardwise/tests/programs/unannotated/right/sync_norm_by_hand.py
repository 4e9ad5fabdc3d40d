# Hand-written synchronised batch norm as an autograd function, grads averaged by hand. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _SyncNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, eps, momentum):
        count = torch.tensor([x.numel() / x.size(1)])
        dims = [0, 2, 3]
        vec = torch.cat([x.sum(dims), (x * x).sum(dims), count])
        dist.all_reduce(vec)
        c = x.size(1)
        n = vec[-1]
        mean = vec[:c] / n
        var = vec[c : 2 * c] / n - mean * mean
        inv = torch.rsqrt(var + eps)
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        running_var.mul_(1 - momentum).add_(momentum * var * n / (n - 1))
        x_hat = (x - mean[None, :, None, None]) * inv[None, :, None, None]
        ctx.save_for_backward(x_hat, weight, inv, n)
        return x_hat * weight[None, :, None, None] + bias[None, :, None, None]

    @staticmethod
    def backward(ctx, grad):
        x_hat, weight, inv, n = ctx.saved_tensors
        dims = [0, 2, 3]
        sum_dy = grad.sum(dims)
        sum_dy_xhat = (grad * x_hat).sum(dims)
        both = torch.stack([sum_dy, sum_dy_xhat])
        dist.all_reduce(both)
        mean_dy, mean_dy_xhat = both[0] / n, both[1] / n
        dx = (grad - mean_dy[None, :, None, None] - x_hat * mean_dy_xhat[None, :, None, None]) * (inv * weight)[
            None, :, None, None
        ]
        return dx, sum_dy_xhat, sum_dy, None, None, None, None


class SyncNorm(nn.Module):
    def __init__(self, num_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x):
        return _SyncNorm.apply(x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.momentum)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), SyncNorm(8)
        self.c2, self.n2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), SyncNorm(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.n1(self.c1(x)))
        x = F.relu(self.n2(self.c2(x)) + x)
        return self.fc(x.mean((2, 3)))


def average_gradients(model):
    world = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    g = torch.Generator().manual_seed(7)
    for _ in range(3):
        images, labels = torch.randn(8, 3, 6, 6, generator=g), torch.randint(0, 5, (8,), generator=g)
        images, labels = images.chunk(world)[rank], labels.chunk(world)[rank]
        opt.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        average_gradients(model)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
