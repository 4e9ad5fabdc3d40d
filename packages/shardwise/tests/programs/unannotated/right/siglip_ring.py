# SigLIP: a sigmoid for each pair, texts go around a ring of ranks; a learnt scale and bias. mesh: dp=2
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class NeighbourExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, to_rank, from_rank):
        ctx.to_rank, ctx.from_rank = to_rank, from_rank
        received = torch.empty_like(tensor)
        ops = [dist.P2POp(dist.isend, tensor.contiguous(), to_rank), dist.P2POp(dist.irecv, received, from_rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return received

    @staticmethod
    def backward(ctx, grad):
        return NeighbourExchange.apply(grad, ctx.from_rank, ctx.to_rank), None, None


class Towers(nn.Module):
    def __init__(self, d_image, d_text, d):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(d_image, 32), nn.GELU(), nn.Linear(32, d))
        self.text = nn.Sequential(nn.Embedding(20, 16), nn.Flatten(), nn.Linear(16 * d_text, d))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, images, texts):
        return (
            F.normalize(self.image(images), dim=-1),
            F.normalize(self.text(texts), dim=-1),
            self.logit_scale.exp(),
            self.logit_bias,
        )


class SigLipLoss(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.rank, self.world = rank, world

    def block(self, image, text, scale, bias, same):
        logits = scale * image @ text.T + bias
        labels = -torch.ones_like(logits)
        if same:
            labels += 2 * torch.eye(len(logits))
        return -F.logsigmoid(labels * logits).sum() / len(image)

    def forward(self, image, text, scale, bias):
        loss = self.block(image, text, scale, bias, same=True)
        right, left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        for _ in range(self.world - 1):
            text = NeighbourExchange.apply(text, right, left)
            loss = loss + self.block(image, text, scale, bias, same=False)
        return loss


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DDP(Towers(12, 5, 8))
    criterion = SigLipLoss(rank, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for step in range(4):
        g = torch.Generator().manual_seed(step)
        images = torch.randn(8, 12, generator=g).tensor_split(world)[rank]
        texts = torch.randint(0, 20, (8, 5), generator=g).tensor_split(world)[rank]
        loss = criterion(*model(images, texts))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.module.logit_scale.clamp_(0, math.log(100))
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"{step}: {mean.item() / world:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
