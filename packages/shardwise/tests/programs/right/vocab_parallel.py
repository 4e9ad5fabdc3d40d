"""A vocab-parallel embedding tied to a vocab-parallel head and cross entropy, without any rank holding all logits."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, Scalar, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
VOCAB, WIDTH = 64, 16
SHARE = VOCAB // mesh["tp"].size()


class TiedEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SHARE, WIDTH))
        spmd.assert_type(self.weight, {"dp": R, "tp": S(0)})
        self.first = Scalar(mesh.get_local_rank("tp") * SHARE, {"dp": R, "tp": V})

    def local(self, ids):
        ids = ids - self.first
        outside = (ids < 0) | (ids >= SHARE)
        ids[outside] = 0
        return ids, outside

    def forward(self, ids):
        ids, outside = self.local(ids)
        x = F.embedding(ids, self.weight)
        x[outside] = 0.0
        return spmd.all_reduce(x, "tp", dst=I)

    def loss(self, x, targets):
        logits = F.linear(spmd.convert(x, "tp", src=I, dst=R), self.weight).float()
        with torch.no_grad():
            top = spmd.all_gather(logits.amax(-1), "tp", src=V, dst=R).amax(0)
        logits = logits - top.unsqueeze(-1)
        total = spmd.all_reduce(logits.exp().sum(-1), "tp", src=V, dst=I)
        ids, outside = self.local(targets)
        picked = logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        picked = torch.where(outside, 0.0, picked)
        return torch.log(total) - spmd.all_reduce(picked, "tp", src=V, dst=I)


with spmd.set_current_mesh(mesh):
    model = TiedEmbedding()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    tokens = spmd.assert_type(torch.randint(VOCAB, (4, 9)), {"dp": S(0), "tp": R})
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    losses = model.loss(model(inputs), targets)
    keep = (targets != 0).float()
    count = spmd.all_reduce(spmd.reinterpret(keep.sum(), "dp", src=V, dst=P), "dp", src=P, dst=R)
    loss = spmd.reinterpret((losses * keep).sum(), "dp", src=V, dst=P) / count
    loss.backward()
    dist.all_reduce(model.weight.grad, group=mesh.get_group("dp"))
    optimizer.step()
