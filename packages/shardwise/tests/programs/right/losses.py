"""Many losses, each per rank, summed over the data axis as the partial sum that it is."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


def data(*shape):
    return spmd.assert_type(torch.randn(*shape), {"dp": S(0)})


def contrastive(a, b, scale):
    """Every rank's rows against all columns."""
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    others = spmd.all_gather(b, "dp", src=S(0), dst=R)
    logits = scale.exp() * a @ others.T
    labels = torch.arange(a.shape[0]) + spmd.Scalar(dist.get_rank() * a.shape[0], {"dp": V})
    return F.cross_entropy(logits, labels)


with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 6)
    scale = nn.Parameter(torch.tensor(2.659))
    spmd.assert_type([*model.parameters(), scale], {"dp": R})
    x, y = data(4, 8), data(4, 6)
    out = model(x)
    classes = out.detach().argmax(-1)
    teacher = F.softmax(y / 2.0, -1)
    student = F.log_softmax(out / 2.0, -1)
    lengths = torch.full((4,), 5, dtype=torch.long)
    sequence = out.view(4, 1, 6).expand(4, 5, 6).transpose(0, 1).log_softmax(-1)
    targets = torch.ones(4, 2, dtype=torch.long)
    losses = {
        "mse": F.mse_loss(out, y),
        "l1": F.smooth_l1_loss(out, y, reduction="sum") / out.numel(),
        "bce": F.binary_cross_entropy_with_logits(out, (y > 0).float(), pos_weight=torch.full((6,), 2.0)),
        "bce2": F.binary_cross_entropy(out.sigmoid(), y.sigmoid()),
        "ce": F.cross_entropy(out, classes, weight=torch.ones(6), ignore_index=-100, label_smoothing=0.1),
        "nll": F.nll_loss(student, classes),
        "kl": F.kl_div(student, teacher, reduction="batchmean") * 4.0,
        "ctc": F.ctc_loss(sequence, targets, lengths, torch.full((4,), 2)),
        "triplet": F.triplet_margin_loss(out, y, -y),
        "cosine": (1 - F.cosine_similarity(out, y)).mean(),
        "clip": contrastive(out, y, scale),
        "huber": nn.HuberLoss()(out, y),
        "hinge": nn.MultiMarginLoss()(out, classes),
        "gaussian": F.gaussian_nll_loss(out, y, y.square()),
        "focal": ((1 - (-F.cross_entropy(out, classes, reduction="none")).exp()) ** 2).mean(),
    }
    total = torch.stack(list(losses.values())).sum() / dist.get_world_size()
    spmd.reinterpret(total, "dp", src=V, dst=P).backward()
    for name, loss in losses.items():
        print(f"{name} {loss.item():.3f} {loss:.3f}", loss)
