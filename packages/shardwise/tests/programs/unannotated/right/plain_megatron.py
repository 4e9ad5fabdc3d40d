# A Megatron MLP of plain tensors in a dict, updated by hand. mesh: tp=2
import torch
import torch.distributed as dist


class CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class ReduceOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def init(d, h, layers, rank, world):
    gen = torch.Generator().manual_seed(7)
    params = {}
    for i in range(layers):
        up = torch.randn(h, d, generator=gen) * 0.3
        down = torch.randn(d, h, generator=gen) * 0.3
        params[f"up{i}"] = up.chunk(world, 0)[rank].clone()
        params[f"bias{i}"] = torch.linspace(-0.2, 0.3, h).chunk(world)[rank].clone()
        params[f"down{i}"] = down.chunk(world, 1)[rank].clone()
        params[f"out{i}"] = torch.linspace(-0.1, 0.1, d)
        params[f"scale{i}"] = torch.ones(d)
    for p in params.values():
        p.requires_grad_()
    return params


def forward(params, x, layers):
    for i in range(layers):
        n = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * params[f"scale{i}"]
        h = torch.tanh(CopyIn.apply(n) @ params[f"up{i}"].t() + params[f"bias{i}"])
        x = x + ReduceOut.apply(h @ params[f"down{i}"].t()) + params[f"out{i}"]
    return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    params = init(8, 16, 2, rank, world)
    gen = torch.Generator().manual_seed(1)
    for step in range(4):
        x, y = torch.randn(6, 8, generator=gen), torch.randn(6, 8, generator=gen)
        loss = (forward(params, x, 2) - y).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in params.values():
                p -= 0.1 * p.grad
                p.grad = None
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}")
    dist.destroy_process_group()


main()
