# EDM diffusion, noise drawn for the whole batch and cut, EMA of weights, gradients averaged by hand. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv2d(3, 8, 3, padding=1)
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 3, 3, padding=1)
        self.scale = nn.Linear(1, 8)

    def forward(self, x, sigma):
        c_in = 1 / (sigma**2 + 0.25).sqrt()
        h = torch.relu(self.inp(c_in.view(-1, 1, 1, 1) * x))
        h = h + self.scale(sigma.log().view(-1, 1) / 4)[:, :, None, None]
        return self.out(torch.relu(self.mid(h)))


def average_gradients(model):
    size = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= size


@torch.no_grad()
def update_ema(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model, ema = Denoiser(), Denoiser()
    ema.load_state_dict(model.state_dict())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(5)
    data = torch.randn(8, 3, 6, 6, generator=gen)
    for _ in range(3):
        images = data.chunk(world)[rank]
        log_sigma = torch.randn(8, generator=gen).chunk(world)[rank]
        noise = torch.randn(8, 3, 6, 6, generator=gen).chunk(world)[rank]
        sigma = (1.2 * log_sigma - 1.2).exp()
        weight = (sigma**2 + 0.25) / (sigma * 0.5) ** 2
        error = (model(images + noise * sigma.view(-1, 1, 1, 1), sigma) - images).square().mean((1, 2, 3))
        loss = (weight * error).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(model)
        opt.step()
        update_ema(ema, model, 0.9)
        with torch.no_grad():
            total = loss.clone()
            dist.all_reduce(total, op=dist.ReduceOp.AVG) if dist.get_backend() == "nccl" else dist.all_reduce(total)
            if rank == 0:
                print("loss", round(total.item() / (1 if dist.get_backend() == "nccl" else world), 5))
    if rank == 0:
        print("ema", round(sum(p.abs().sum().item() for p in ema.parameters()), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
