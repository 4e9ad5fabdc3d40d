# A dice loss over the whole batch: its sums go through a differentiable all-reduce. mesh: dp=2
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_f
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def dice_loss(logits, target, eps=1.0):
    p = logits.sigmoid()
    inter = (p * target).sum()
    total = p.sum() + target.sum()
    stats = dist_f.all_reduce(torch.stack([inter, total]))
    return 1 - (2 * stats[0] + eps) / (stats[1] + eps)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 6, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.up = nn.ConvTranspose2d(6, 1, 2, stride=2)

    def forward(self, x):
        h = F.gelu(self.down(x))
        h = h + F.gelu(self.norm(self.mid(h)))
        return self.up(h)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Unet())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    images = torch.randn(3, 4, 1, 8, 8)
    masks = (torch.rand(3, 4, 1, 8, 8) > 0.7).float()
    for image, mask in zip(images, masks):
        image, mask = image.tensor_split(world)[rank], mask.tensor_split(world)[rank]
        logits = model(image)
        loss = dice_loss(logits, mask) + F.binary_cross_entropy_with_logits(logits, mask)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
