# Convolutions cut by channels in pairs: by outputs, then by inputs; norms on own channels between. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

TP = None


class F_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=TP)
        return g


class G_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=TP)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def cut(t, dim):
    return nn.Parameter(t.detach().chunk(dist.get_world_size(TP), dim)[dist.get_rank(TP)].clone())


class ConvOut(nn.Module):
    def __init__(self, i, o, k):
        super().__init__()
        full = nn.Conv2d(i, o, k, padding=k // 2)
        self.weight, self.bias, self.pad = cut(full.weight, 0), cut(full.bias, 0), k // 2

    def forward(self, x):
        return F.conv2d(F_.apply(x), self.weight, self.bias, padding=self.pad)


class ConvIn(nn.Module):
    def __init__(self, i, o, k):
        super().__init__()
        full = nn.Conv2d(i, o, k, padding=k // 2)
        self.weight, self.bias, self.pad = cut(full.weight, 1), nn.Parameter(full.bias.detach().clone()), k // 2

    def forward(self, x):
        return G_.apply(F.conv2d(x, self.weight, None, padding=self.pad)) + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, c, mid):
        super().__init__()
        n = dist.get_world_size(TP)
        self.norm = nn.GroupNorm(2, c)
        self.a, self.mid = ConvOut(c, mid, 3), nn.GroupNorm(4 // n, mid // n)
        self.b = ConvIn(mid, c, 1)

    def forward(self, x):
        return x + self.b(F.silu(self.mid(self.a(F.silu(self.norm(x))))))


class Net(nn.Module):
    def __init__(self, c=4, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(1, c, 3, stride=2)
        self.blocks = nn.Sequential(Block(c, 8), Block(c, 8))
        self.head = nn.Linear(c, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    global TP
    dist.init_process_group("gloo")
    tp = min(2, dist.get_world_size())
    mesh = init_device_mesh("cpu", (dist.get_world_size() // tp, tp), mesh_dim_names=("dp", "tp"))
    TP, dp = mesh.get_group("tp"), mesh.get_group("dp")
    torch.manual_seed(3)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net, process_group=dp)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    x, y = torch.randn(2, 8, 1, 9, 9), torch.randint(0, 3, (2, 8))
    rows = slice(dist.get_rank(dp), None, dist.get_world_size(dp))
    for a, b in zip(x, y):
        opt.zero_grad()
        F.cross_entropy(model(a[rows]), b[rows]).backward()
        opt.step()
    dist.destroy_process_group()


main()
