# Megatron: an mpu of module state, tensor parallelism, master weights, one flat sum of gradients. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

_TP_GROUP = None
_DP_GROUP = None


def initialize_model_parallel(tp_size):
    global _TP_GROUP, _DP_GROUP
    world = dist.get_world_size()
    for start in range(0, world, tp_size):
        ranks = list(range(start, start + tp_size))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            _TP_GROUP = group
    for offset in range(tp_size):
        ranks = list(range(offset, world, tp_size))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            _DP_GROUP = group


class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        if dist.get_world_size(_TP_GROUP) > 1:
            grad = grad.contiguous()
            dist.all_reduce(grad, group=_TP_GROUP)
        return grad


class _ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if dist.get_world_size(_TP_GROUP) > 1:
            dist.all_reduce(x, group=_TP_GROUP)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def _init_sharded(rows, cols, dim):
    full = torch.empty(rows, cols).normal_(0, 0.2)
    n, r = dist.get_world_size(_TP_GROUP), dist.get_rank(_TP_GROUP)
    return full.chunk(n, dim)[r].contiguous()


class ColumnParallelLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(_init_sharded(n_out, n_in, 0))
        self.bias = nn.Parameter(torch.zeros(self.weight.shape[0]))

    def forward(self, x):
        return F.linear(_CopyToModelParallelRegion.apply(x), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(_init_sharded(n_out, n_in, 1))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return _ReduceFromModelParallelRegion.apply(F.linear(x, self.weight)) + self.bias


class MLPBlock(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up, self.down = ColumnParallelLinear(hidden, 4 * hidden), RowParallelLinear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    initialize_model_parallel(2 if dist.get_world_size() > 1 else 1)
    torch.manual_seed(1234)
    model = nn.Sequential(nn.Linear(6, 16), MLPBlock(16), MLPBlock(16), nn.Linear(16, 3))
    masters = [p.detach().clone().float() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1, momentum=0.9)
    dp, dp_rank = dist.get_world_size(_DP_GROUP), dist.get_rank(_DP_GROUP)
    for step in range(4):
        gen = torch.Generator().manual_seed(100 + step)
        data, target = torch.randn(16, 6, generator=gen), torch.randint(3, (16,), generator=gen)
        per = 16 // dp
        mine = slice(dp_rank * per, (dp_rank + 1) * per)
        loss = F.cross_entropy(model(data[mine]), target[mine])
        loss.backward()
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        dist.all_reduce(flat, group=_DP_GROUP)
        flat /= dp
        offset = 0
        for master, p in zip(masters, model.parameters()):
            master.grad = flat[offset : offset + p.numel()].view_as(p).clone()
            offset += p.numel()
            p.grad = None
        optimizer.step()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                p.copy_(master)
        averaged = loss.detach().clone()
        dist.all_reduce(averaged, group=_DP_GROUP)
        if dist.get_rank() == 0:
            print(f"iteration {step} lm loss {averaged.item() / dp:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
