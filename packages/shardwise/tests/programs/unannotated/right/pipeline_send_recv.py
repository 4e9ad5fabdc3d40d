# A pipeline by hand with send and recv, two micro-batches, data parallel beside it. mesh: pp=2,dp=2
import torch
import torch.distributed as dist
from torch import nn

MICRO = 2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stages = min(2, world)
    dp_size = world // stages
    stage, dp_rank = rank // dp_size, rank % dp_size
    groups = [dist.new_group(list(range(s * dp_size, (s + 1) * dp_size))) for s in range(stages)]
    dp_group = groups[stage]
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2)]
    model = nn.Sequential(*blocks[stage * 2 // stages : (stage + 1) * 2 // stages])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(2, 8, 6)
    xs, ys = x.chunk(dp_size)[dp_rank].chunk(MICRO), y.chunk(dp_size)[dp_rank].chunk(MICRO)
    for _ in range(2):
        optimizer.zero_grad()
        held = []
        for micro in range(MICRO):
            if stage == 0:
                inputs = xs[micro]
            else:
                inputs = torch.empty_like(xs[micro])
                dist.recv(inputs, src=rank - dp_size)
                inputs.requires_grad_()
            out = model(inputs)
            if stage < stages - 1:
                dist.send(out.detach(), dst=rank + dp_size)
            held.append((inputs, out))
        for micro, (inputs, out) in enumerate(held):
            if stage == stages - 1:
                (nn.functional.mse_loss(out, ys[micro]) / MICRO).backward()
            else:
                grad = torch.empty_like(out)
                dist.recv(grad, src=rank + dp_size)
                out.backward(grad)
            if stage > 0:
                dist.send(inputs.grad, dst=rank - dp_size)
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
            p.grad /= dp_size
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
