# CLIP's loss over the features of all ranks, gathered with gradients. mesh: dp=2
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn as nn
import torch.nn.functional as F


def gather_features(image_features, text_features):
    all_image = torch.cat(torch.distributed.nn.all_gather(image_features), dim=0)
    all_text = torch.cat(torch.distributed.nn.all_gather(text_features), dim=0)
    return all_image, all_text


class ClipLoss(nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def forward(self, image_features, text_features, logit_scale):
        if self.world_size > 1:
            all_image, all_text = gather_features(image_features, text_features)
        else:
            all_image, all_text = image_features, text_features
        logits_per_image = logit_scale * image_features @ all_text.T
        logits_per_text = logit_scale * text_features @ all_image.T
        labels = torch.arange(len(image_features))
        if self.world_size > 1:
            labels = labels + len(image_features) * self.rank
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2


class Clip(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, dim))
        self.text = nn.Sequential(nn.Embedding(30, 32), nn.Linear(32, dim))
        self.logit_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text(text).mean(1), dim=-1)
        return image_features, text_features, self.logit_scale.exp()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Clip())
    loss_fn = ClipLoss(rank, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    gen = torch.Generator().manual_seed(10)
    for step in range(3):
        images = torch.randn(8, 20, generator=gen).chunk(world)[rank]
        texts = torch.randint(0, 30, (8, 5), generator=gen).chunk(world)[rank]
        loss = loss_fn(*model(images, texts))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log = loss.detach().clone()
        dist.all_reduce(log)
        if rank == 0:
            print(f"step {step} loss {log.item() / world:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
