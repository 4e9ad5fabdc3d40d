# A contrastive loss in a module that gathers the embeddings of all ranks, with DDP around the model. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


class PairLoss(nn.Module):
    def forward(self, embeddings, labels, others, other_labels):
        logits = F.normalize(embeddings, dim=-1) @ F.normalize(others, dim=-1).T / 0.1
        same = (labels[:, None] == other_labels[None]).float()
        return -(same * logits.log_softmax(-1)).sum(-1).div(same.sum(-1)).mean()


class OverAllRanks(nn.Module):
    """Hands the embeddings of all ranks to a loss."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, embeddings, labels):
        counts = [torch.empty_like(labels) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, labels)
        return self.loss(embeddings, labels, Gather.apply(embeddings), torch.cat(counts))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8)))
    loss_of = PairLoss()
    if world > 1:
        loss_of = OverAllRanks(loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, labels = torch.randn(3, 8, 12), torch.arange(8) // 2
    for step in range(3):
        embeddings, own = model(x[step].chunk(world)[rank]), labels.chunk(world)[rank]
        loss = loss_of(embeddings, own) if world > 1 else loss_of(embeddings, own, embeddings, own)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
