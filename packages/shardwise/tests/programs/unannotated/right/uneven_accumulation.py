# Accumulation with a shorter last micro-batch: sums over tokens, divided by the global count. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, vocab=23, d=10, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.norm = nn.RMSNorm(d)
        self.tag = nn.Linear(d, tags)

    def forward(self, ids):
        h = self.embed(ids)
        h = h + self.down(F.silu(self.up(self.norm(h))))
        return self.tag(h)


def sums(model, ids, tags):
    return F.cross_entropy(model(ids).flatten(0, 1), tags.flatten(), ignore_index=-100, reduction="sum")


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Tagger()
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    g = torch.Generator().manual_seed(8)
    for _ in range(3):
        ids = torch.randint(0, 23, (10, 6), generator=g)
        tags = torch.randint(0, 4, (10, 6), generator=g)
        tags[torch.rand(10, 6, generator=g) < 0.3] = -100
        ids, tags = ids.chunk(world)[rank], tags.chunk(world)[rank]
        count = (tags != -100).sum()
        dist.all_reduce(count)
        opt.zero_grad(set_to_none=False)
        total = torch.zeros(())
        for one, goal in zip(ids.split(2), tags.split(2)):
            loss = sums(model, one, goal) / count
            loss.backward()
            total += loss.detach()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        dist.all_reduce(total)
    print("RESULT", total.item(), sum(p.abs().sum().item() for p in model.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
