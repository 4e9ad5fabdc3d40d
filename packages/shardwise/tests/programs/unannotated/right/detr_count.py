# A detector whose losses are divided by the mean number of boxes per rank, as DETR does, under DDP. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def is_dist_avail_and_initialized():
    return dist.is_available() and dist.is_initialized()


def get_world_size():
    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


def reduce_dict(input_dict):
    with torch.no_grad():
        names = sorted(input_dict)
        values = torch.stack([input_dict[k] for k in names])
        if get_world_size() > 1:
            dist.all_reduce(values)
            values /= get_world_size()
        return dict(zip(names, values))


class SetCriterion(nn.Module):
    def forward(self, outputs, targets):
        num_boxes = torch.as_tensor([sum(len(t["boxes"]) for t in targets)], dtype=torch.float)
        if is_dist_avail_and_initialized():
            dist.all_reduce(num_boxes)
        num_boxes = torch.clamp(num_boxes / get_world_size(), min=1).item()
        l1 = logit = 0.0
        for pred, score, t in zip(outputs["boxes"], outputs["scores"], targets):
            n = len(t["boxes"])
            l1 = l1 + (pred[:n] - t["boxes"]).abs().sum()
            goal = torch.zeros(len(score))
            goal[:n] = 1
            logit = logit + F.binary_cross_entropy_with_logits(score, goal, reduction="sum")
        return {"bbox": l1 / num_boxes, "ce": logit / num_boxes}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = nn.Embedding(5, 8)
        self.backbone = nn.Conv2d(3, 8, 3, stride=2)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.box, self.score = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, images):
        memory = self.backbone(images).flatten(2).transpose(1, 2)
        q = self.queries.weight.expand(len(images), -1, -1)
        h = self.attend(q, memory, memory, need_weights=False)[0]
        return {"boxes": self.box(h).sigmoid(), "scores": self.score(h).squeeze(-1)}


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model, criterion = DDP(Detector()), SetCriterion()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    images = torch.randn(4, 3, 7, 7)
    targets = [{"boxes": torch.rand(n, 4)} for n in (1, 3, 2, 5)]
    for step in range(3):
        share = slice(rank * 4 // world, (rank + 1) * 4 // world)
        losses = criterion(model(images[share]), targets[share])
        loss = 5 * losses["bbox"] + losses["ce"]
        shown = reduce_dict(losses)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
        if rank == 0:
            print(step, {k: round(v.item(), 5) for k, v in shown.items()})
    dist.destroy_process_group()


main()
