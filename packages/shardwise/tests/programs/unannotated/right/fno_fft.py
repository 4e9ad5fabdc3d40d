# A Fourier neural operator on a field cut by rows: the second transform needs a transpose by all-to-all. mesh: sp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Transpose(torch.autograd.Function):
    """Cut dim ``split``, join dim ``join``: what was whole over one dim is then whole over the other."""

    @staticmethod
    def forward(ctx, x, split, join):
        ctx.dims = split, join
        world = dist.get_world_size()
        if world == 1:
            return x.clone()
        sent = torch.stack([c.contiguous() for c in x.chunk(world, split)])
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        return torch.cat(got.unbind(0), join)

    @staticmethod
    def backward(ctx, grad):
        split, join = ctx.dims
        return Transpose.apply(grad, join, split), None, None


def transpose_complex(z, split, join):
    pair = Transpose.apply(torch.view_as_real(z).contiguous(), split, join)
    return torch.view_as_complex(pair.contiguous())


class SpectralConv(nn.Module):
    def __init__(self, ch, height, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(ch, ch, 2) / ch)

    def forward(self, x):
        z = torch.fft.fft(x, dim=3)
        z = transpose_complex(z, 3, 2)
        z = torch.fft.fft(z, dim=2)
        keep = torch.zeros(z.shape[2])
        keep[: self.modes] = 1
        z = torch.einsum("bihw,io->bohw", z * keep[:, None], torch.view_as_complex(self.weight))
        z = torch.fft.ifft(z, dim=2)
        z = transpose_complex(z, 2, 3)
        return torch.fft.ifft(z, dim=3).real


class FNO(nn.Module):
    def __init__(self, ch=4):
        super().__init__()
        self.lift, self.project = nn.Conv2d(1, ch, 1), nn.Conv2d(ch, 1, 1)
        self.spectral = nn.ModuleList(SpectralConv(ch, 8, 5) for _ in range(2))
        self.skips = nn.ModuleList(nn.Conv2d(ch, ch, 1) for _ in range(2))

    def forward(self, x):
        x = self.lift(x)
        for spectral, skip in zip(self.spectral, self.skips):
            x = F.gelu(spectral(x) + skip(x))
        return self.project(x)


def relative_l2(out, target):
    parts = torch.stack([((out - target) ** 2).sum((1, 2, 3)), (target**2).sum((1, 2, 3))])
    whole = parts.detach().clone()
    dist.all_reduce(whole)
    # the gradient of sqrt(a / b) with respect to this rank's part of a
    value = (whole[0] / whole[1]).sqrt()
    return (parts[0] / (2 * value * whole[1])).mean(), value.mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(19)
    model = FNO()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        field, target = torch.randn(2, 1, 8, 8, generator=g), torch.randn(2, 1, 8, 8, generator=g)
        field, target = field.chunk(world, 2)[rank], target.chunk(world, 2)[rank]
        surrogate, value = relative_l2(model(field), target)
        optimizer.zero_grad()
        surrogate.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if rank == 0:
            print(f"{step} {value.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
