# DINO: self-distillation with a centre over the batch of all ranks. mesh: dp=2
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class DINOLoss(nn.Module):
    def __init__(self, out_dim, ncrops, teacher_temp=0.04, student_temp=0.1, center_momentum=0.9):
        super().__init__()
        self.student_temp = student_temp
        self.teacher_temp = teacher_temp
        self.center_momentum = center_momentum
        self.ncrops = ncrops
        self.register_buffer("center", torch.zeros(1, out_dim))

    def forward(self, student_output, teacher_output):
        student_out = (student_output / self.student_temp).chunk(self.ncrops)
        teacher_out = F.softmax((teacher_output - self.center) / self.teacher_temp, dim=-1).detach().chunk(2)
        total_loss = 0
        n_loss_terms = 0
        for iq, q in enumerate(teacher_out):
            for v in range(len(student_out)):
                if v == iq:
                    continue
                loss = torch.sum(-q * F.log_softmax(student_out[v], dim=-1), dim=-1)
                total_loss += loss.mean()
                n_loss_terms += 1
        total_loss /= n_loss_terms
        self.update_center(teacher_output)
        return total_loss

    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        dist.all_reduce(batch_center)
        batch_center = batch_center / (len(teacher_output) * dist.get_world_size())
        self.center = self.center * self.center_momentum + batch_center * (1 - self.center_momentum)


class Head(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, 16), nn.GELU(), nn.Linear(16, 8))
        self.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, out, bias=False))

    def forward(self, x):
        return self.last_layer(F.normalize(self.mlp(x), dim=-1, p=2))


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 16))
        self.head = Head(16, 10)

    def forward(self, crops):
        return self.head(torch.cat([self.backbone(c) for c in crops]))


def cosine_scheduler(base, final, steps):
    return [final + 0.5 * (base - final) * (1 + math.cos(math.pi * i / steps)) for i in range(steps)]


def train():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    student, teacher = Wrapper(), Wrapper()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    student = DDP(student)
    dino_loss = DINOLoss(10, 4)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    momentum = cosine_scheduler(0.9, 1, 3)
    images = torch.randn(3, 8, 12)
    noise = torch.randn(3, 4, 8, 12) * 0.1
    for it in range(3):
        part = slice(rank * 8 // world, (rank + 1) * 8 // world)
        crops = [images[it, part] + noise[it, c, part] for c in range(4)]
        teacher_output = teacher(crops[:2])
        student_output = student(crops)
        loss = dino_loss(student_output, teacher_output)
        optimizer.zero_grad()
        loss.backward()
        for p in student.parameters():
            torch.nn.utils.clip_grad_norm_(p, 3.0)
        if it == 0:
            for n, p in student.named_parameters():
                if "last_layer" in n:
                    p.grad = None
        optimizer.step()
        with torch.no_grad():
            m = momentum[it]
            for param_q, param_k in zip(student.module.parameters(), teacher.parameters()):
                param_k.data.mul_(m).add_((1 - m) * param_q.detach().data)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
